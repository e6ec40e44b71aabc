"""The screen of a lake: jobs, ranks, sessions; a session opens as its own screen."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.theme import Theme
from textual.widgets import DataTable, Footer, Static

from gputop.errors import GputopError
from gputop.fleet.browse import Lake, Late, Recorded, SessionGroup, why_not
from gputop.format import NS_PER_S, clip, escape_text, format_count, format_hours, format_ns, width_of
from gputop.process.textual_app import SureTimers

_LOG = logging.getLogger(__name__)
_HOUR: Final = 3_600 * NS_PER_S
_HEADS: Final = {
    "jobs": (
        "job", "lost", "of GPU time", "ranks", "recordings", "late rank", "events lost", "mostly by",
    ),
    "ranks": (
        "rank", "lost", "of GPU time", "late by", "recordings", "events lost", "host", "mostly by",
    ),
    "sessions": (
        "recorded, UTC", "lost", "of GPU time", "late by", "length", "events lost", "host", "mostly by",
        "file",
    ),
}  # fmt: skip
_NEXT: Final = ("Enter shows its ranks", "Enter shows its sessions")
_FIGURES: Final = frozenset(
    {"lost", "of GPU time", "ranks", "recordings", "length", "late by", "events lost"}
)
_WIDEST: Final = 70  # columns of a cell; the lines below the table have the whole text
_NOT_RECORDED: Final = "unknown"
# lends the terminal for the block
Lent = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Ways:
    """Actions that the screen delegates."""

    # shows a recording in the borrowed terminal; returns an error text, or ""
    open: Callable[[str, Lent], str]
    late: Callable[[], Sequence[Late]]  # finds late ranks, which may take seconds; raises GputopError


class LakeScreen(SureTimers):
    """Three levels of one table. Enter goes into a row, Escape goes back to it."""

    CSS = """
    #place { height: 1; text-style: bold; padding: 0 1; }
    DataTable { height: 1fr; }
    #about { height: auto; max-height: 6; padding: 0 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,left", "leave", "Back"),
        Binding("q", "close", "Quit"),
        Binding("ctrl+c", "close", "Quit", show=False),
    ]

    def __init__(
        self, lake: Lake, name: str, ways: Ways, themes: Sequence[Theme] = (), theme: str = ""
    ) -> None:
        """Make the screen.

        Args:
            name: Its name.
            ways: Delegated actions.
            themes: Available themes.
            theme: Name of the theme; "": Textual's default.
        """
        super().__init__()
        self._lake, self._name, self._ways = lake, name, ways
        for one in themes:
            self.register_theme(one)
        if theme:
            self.theme = theme
        self._place: list[SessionGroup] = []  # the entered job, then the entered rank
        self._rows: list[SessionGroup] = []
        self.late: Sequence[Late] | None = None
        self._late_why = "searching for late ranks"

    def compose(self) -> ComposeResult:
        yield Static(id="place", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="about", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Show the jobs; late ranks are added once they are known."""
        self._fill()
        # not a Textual worker, which would delay the exit
        threading.Thread(target=self._look, name="gputop-late", daemon=True).start()

    def _look(self) -> None:
        late: Sequence[Late] | None = None
        try:
            late, why = self._ways.late(), ""
        except GputopError as error:
            why = f"late ranks are not known: {error}"
        except Exception as error:  # else "searching" would stay forever
            _LOG.exception("late ranks cannot be found")
            why = f"late ranks are not known: {type(error).__name__}"
        with suppress(RuntimeError):  # the screen has ended meanwhile
            self.call_from_thread(self._show_late, late, why)

    def _show_late(self, late: Sequence[Late] | None, why: str) -> None:
        self.late, self._late_why = late, why
        self._fill(self.query_one(DataTable).cursor_row)

    # -- keys -----------------------------------------------------------------------------------------

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Go into a job or a rank; open a session."""
        chosen = self._rows[event.cursor_row]
        if len(self._place) < len(_HEADS) - 1:
            self._place.append(chosen)
            self._fill()
            return
        (session,) = chosen.sessions.values()
        refusal = why_not(session) or self._ways.open(session.path, self.suspend)
        if refusal:
            self.notify(escape_text(refusal), severity="warning", timeout=20, markup=False)

    def action_leave(self) -> None:
        if self._place:
            left = self._place.pop()
            self._rows = self._groups()
            self._fill(next(row for row, one in enumerate(self._rows) if _same(one, left)))

    def action_close(self) -> None:
        self.exit(0)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self._show_about(event.cursor_row)

    # -- what is shown --------------------------------------------------------------------------------

    def _groups(self) -> list[SessionGroup]:
        if not self._place:
            return self._lake.jobs()
        job = self._place[0].job
        return (
            self._lake.ranks(job) if len(self._place) == 1 else self._lake.sessions(job, self._place[1].rank)
        )

    def _fill(self, row: int = 0) -> None:
        level = list(_HEADS)[len(self._place)]
        table = self.query_one(DataTable)
        table.clear(columns=True)
        heads = _HEADS[level]
        self._rows = self._groups()
        shown = [self._cells(level, one) for one in self._rows]
        for head in heads:
            # explicit, since the table keeps the measured widths of the previous level
            width = max(width_of(head), *(width_of(cells[head]) for cells in shown), 0)
            table.add_column(_text(head, head), key=head, width=width)
        for cells in shown:
            table.add_row(*(_text(head, cells[head]) for head in heads))
        table.move_cursor(row=row)
        table.focus()
        steps = [self._name, *(_named(one, step) for step, one in enumerate(self._place))]
        self.query_one("#place", Static).update(" › ".join(map(escape_text, steps)) + f": {level}")
        self._show_about(row)

    def _cells(self, level: str, one: SessionGroup) -> Mapping[str, str]:
        late = self._lake.late_in(one, self.late or ())
        unknown = "not known" if self.late is None else ""
        cells = {
            "lost": format_hours(one.loss_ns / _HOUR),
            "of GPU time": format_hours(one.gpu_ns / _HOUR),
            "mostly by": one.cause or "-",
            "ranks": format_count(len(one.ranks)) if one.ranks else "-",
            "recordings": format_count(len(one.sessions)),
            "events lost": format_count(one.lost_events),
            "late rank": unknown or _late_rank(late),
            "late by": unknown or (format_ns(late[0].late_ms * 1e6) if late else "-"),
            "host": ", ".join(one.hosts) or "-",
            "job": one.job or _NOT_RECORDED,
            "rank": _NOT_RECORDED if one.rank is None else str(one.rank),
        }
        if level == "sessions":
            (session,) = one.sessions.values()
            cells |= {
                "recorded, UTC": _day(session),
                "length": format_ns(session.duration_ns),
                "file": session.path,
            }
        return {head: clip(escape_text(cell), _WIDEST) for head, cell in cells.items()}

    def _show_about(self, row: int) -> None:
        lines = []
        if row < len(self._rows):
            one = self._rows[row]
            if len(self._place) == len(_HEADS) - 1:
                (session,) = one.sessions.values()
                lines += [session.verdict, f"Enter opens {session.path}"]
            else:
                lines.append(_NEXT[len(self._place)])
            for late in self._lake.late_in(one, self.late or ())[:2]:
                lines.append(
                    f"the others wait for rank {late.rank}, {format_ns(late.late_ms * 1e6)}: {late.cause}"
                )
        else:
            lines.append("this lake holds no session: gputop fleet ingest SESSION… --into LAKE")
        lines += [self._late_why] if self._late_why else []
        self.query_one("#about", Static).update("\n".join(map(escape_text, lines)))


def _text(head: str, cell: str) -> Text:
    return Text(cell, justify="right" if head in _FIGURES else "left", no_wrap=True)


def _same(one: SessionGroup, other: SessionGroup) -> bool:
    return (one.job, one.rank) == (other.job, other.rank)


def _named(one: SessionGroup, step: int) -> str:
    if step == 0:
        return one.job or "job unknown"
    return "rank unknown" if one.rank is None else f"rank {one.rank}"


def _late_rank(late: Sequence[Late]) -> str:
    if not late:
        return "-"
    more = f" and {len(late) - 1} more" if len(late) > 1 else ""
    return f"{late[0].rank}, by {format_ns(late[0].late_ms * 1e6)}{more}"


def _day(session: Recorded) -> str:
    at = datetime.fromtimestamp(session.start_wall_ns / NS_PER_S, timezone.utc)
    return f"{at:%Y-%m-%d %H:%M:%S}"
