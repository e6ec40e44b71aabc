"""The pane of the processes, with the keys to filter, group, follow and signal them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from gputop.engine.frame import Frame
from gputop.format import escape_text
from gputop.process.terminal import in_browser
from gputop.ui.kept import NotKeptError, keep_group
from gputop.ui.model.listing import process_table
from gputop.ui.model.listing.filter import FIELDS, HINT, SLOW, STATES, Filter, FilterError, parse_filter
from gputop.ui.model.listing.process_table import belongs, container_id, job
from gputop.ui.model.look import line_width
from gputop.ui.model.table import Context
from gputop.ui.panes.dialogs import Confirm, FilterSuggester, Menu, Question
from gputop.ui.panes.pane import Heading, quiet_key
from gputop.ui.panes.table_panes import TablePane

_CORNERS = 8  # columns of a title's rules and gaps


class Processes(TablePane):
    """The processes; the detail panes show the selected one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash", "filter", "Filter",
            tooltip="filter the processes: text, !regex, gpu: user: job: container: call: state: …",
        ),
        quiet_key("o", "freeze", "Freeze", "freeze the row order; values are still updated"),
        quiet_key("g", "gpu", "GPU", "only the processes of one GPU: the next GPU, then all"),
        quiet_key("e", "tree", "Tree",
                  "process tree with sums, or a list"),
        quiet_key("G", "group", "Group", "group by user, container, pod, job, rank or GPU, with sums"),
        quiet_key("E", "fold", "Fold", "fold or unfold the branch of the selected process"),
        quiet_key("f", "follow", "Follow",
                  "follow the selected process: keep it selected and visible"),
        quiet_key("K", "signal", "Signal",
                  "send the selected process a signal, from a menu, after a confirmation"),
    ]  # fmt: skip
    mark = True
    room: int | None = None  # lines available; None: unlimited

    def context(self, frame: Frame) -> Context:
        return self.view.listing.context(process_table.context_of(frame, self.view.glyphs))

    def nobody(self, frame: Frame) -> Sequence[str]:
        view = self.view
        return view.listing.empty(frame) or process_table.waiting(frame, view.outcome, view.log)

    def wanted(self, width: int) -> int:
        """Return the lines of the heading and all rows, or of a failed command's output."""
        frame, view = self.view.frame, self.view
        if frame is None or self.table.rows or not view.outcome:
            wanted = super().wanted(width)
            return wanted if self.room is None else min(wanted, max(self.room, 2))
        return 1 + len(self.nobody(frame))

    def row_token(self, row: Any) -> str:
        return process_table.row_token(row)

    def heading(self) -> Heading:
        title = [("Processes", ""), *self.view.listing.title(self.view.glyphs)]
        more, order = self.more(), self.sorted_out_of_sight()
        fits = line_width([*title, *order]) + len(more) + _CORNERS <= self.size.width
        return [*title, *(order if fits else [])], more

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.app.sender is not None if action == "signal" else super().check_action(action, parameters)

    # -- the list -----------------------------------------------------------------------------

    def relist(self) -> None:
        """Update the list after a changed filter or order."""
        self.view.processes.resort()
        self.app.show_message(self.view.list())
        self.app.show()

    def action_freeze(self) -> None:
        frozen = not self.view.processes.frozen
        for table in self.view.tables.values():
            table.frozen = frozen
        self.app.show()

    def action_filter(self) -> None:
        """Prompt for a filter, applied with every key; Escape restores the former one."""
        listing = self.view.listing
        before = listing.filter

        def apply(made: Filter) -> None:
            listing.filter = made
            self.relist()

        def changed(text: str) -> None:
            try:
                apply(parse_filter(text))
            except FilterError:
                return  # incomplete; the error is shown after Enter

        def answered(text: str) -> str:
            try:
                apply(parse_filter(text))
            except FilterError as error:
                return str(error)
            return SLOW if listing.filter.slow else ""

        question = Question(
            "filter",
            answered,
            before.text,
            hint=HINT,
            changed=changed,
            cancelled=lambda: apply(before),
            suggester=FilterSuggester(self._words()),
        )
        self.app.prompt(question)

    def _words(self) -> Iterable[str]:
        """Return completions for a filter."""
        rows = self.view.frame.processes if self.view.frame else ()
        known = [("user", row.user) for row in rows] + [("name", row.name) for row in rows]
        known += [("call", call.api) for row in rows for call in row.calls]
        known += [("gpu", str(index)) for row in rows for index in row.gpus or ()]
        known += [("state", state) for state in STATES]
        known += [("container", container_id(row)) for row in rows] + [("job", job(row)) for row in rows]
        known += [("pod", belongs(row, "pod")) for row in rows]
        words = {
            f"{field}:{text}"
            for field, text in known
            if text and escape_text(text) == text and " " not in text
        }
        return words | {f"{field}:" for field in FIELDS}

    def action_gpu(self) -> None:
        if self.view.frame is not None:
            self.view.listing.next_gpu(self.view.frame)
            self.relist()

    def action_tree(self) -> None:
        self.view.listing.toggle_tree(self.view.processes)
        self.relist()

    def action_group(self) -> None:
        if self.view.frame is not None:
            self.view.listing.next_group(self.view.frame)
            self.relist()
            self._keep_group()

    def _keep_group(self) -> None:
        """Save the grouping in the preferences."""
        path = self.view.preferences_path
        if not path or in_browser():
            return
        try:
            keep_group(Path(path), self.view.listing.group)
        except NotKeptError as error:
            self.app.show_message(str(error))

    def action_fold(self) -> None:
        listing = self.view.listing
        if not listing.as_tree and not listing.group:
            self.action_tree()
        elif listing.fold(self.view.processes):
            self.relist()
        else:
            self.app.show_message("this process is in no branch: it has no listed children")

    def action_follow(self) -> None:
        listing, row = self.view.listing, self.view.selected
        if listing.followed is not None:
            listing.followed = None
        elif row is not None:
            listing.followed = row
            name = self.view.glyphs.shown(row.name)
            self.app.show_message(
                f"following {row.pid} {name}: it stays selected and visible; [f] or moving ends it"
            )
        self.view.list()
        self.app.show()

    # -- signals ------------------------------------------------------------------------------

    def action_signal(self) -> None:
        row, sender = self.view.selected, self.app.sender
        if row is None or sender is None:
            return
        name = escape_text(row.name)
        if row.exited_ns is not None:
            self.app.show_message(f"{row.pid} {name} has ended already")
            return
        refusal = sender.refusal(row)
        if refusal:
            self.app.show_message(refusal)
            return

        def chosen(index: int) -> None:
            def answered(yes: bool) -> None:
                self.app.show_message(sender.send(row, index) if yes else "nothing was sent")

            signal = sender.offered[index][0].name
            question = f"send {signal} to {row.pid} {name}?"
            self.app.prompt(Confirm(question, "send nothing", f"send {signal}", answered))

        choices = [f"{number.name:<9} {meaning}" for number, meaning in sender.offered]
        command = self.view.glyphs.clip(escape_text(row.command), 60)
        who = f"signal to {row.pid} {name}  user {escape_text(row.user)}\n{command}"
        self.app.prompt(Menu(who, choices, chosen))
