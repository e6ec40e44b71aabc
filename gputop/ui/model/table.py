"""A table of changing rows: selection by key, stable order, columns that fit the width."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gputop.format import NS_PER_S, fit, width_of
from gputop.ui.model.look import Glyphs, Line, Span, fit_line, merged, plain

T = TypeVar("T")
FAR_NS = 5 * NS_PER_S  # a jump between two frames, after which rows need not keep their places
_STAYS_NS = 30 * NS_PER_S  # an empty column, and the room of a longer text, stay so long: nothing jumps
GAP = 1
_THREE_DIGITS, _MOST_DIGITS = 1_000, 100_000  # between them a percentage has four or five digits


@dataclass(frozen=True, slots=True)
class Context:
    """The context of cells, beside their row."""

    glyphs: Glyphs
    window_s: float
    time_ns: int
    storms: dict[int, str] = field(default_factory=dict)
    used_buckets: tuple[int, int] = (0, 0)
    traced: bool = True  # False without eBPF: calls and preempting threads are unknown
    leads: Mapping[int, str] = field(default_factory=dict)  # text before the name, of the tree


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column."""

    key: str  # its name in the preferences
    title: str  # its heading
    width: int  # its width, or the least one if it can grow
    cell: Callable[[T, Context, int], Span]  # returns text and token of a row; the text may be too long
    sort: Callable[[T], float | str]  # returns the value to sort by
    right: bool = True  # True to align right, as for numbers
    keep: int = 5  # the lowest ones are left out first
    grow: int = 0  # the largest width
    whole: bool = False  # True to grow to that width or not at all
    shortens: bool = False  # True if its texts have short forms: it grows after the others
    descending: bool = True  # True to sort largest first by default
    # returns whether a row has a value; without any the column is left out. None: all have
    has: Callable[[T], bool] | None = None
    instead: str = ""  # the key of a column that it replaces if there is no room for both


def needed(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[Column[T]]:
    """Return the columns for which any row has a value."""
    return [column for column in columns if column.has is None or any(map(column.has, rows))]


def _fitting(columns: Sequence[Column[T]], width: int) -> list[Column[T]]:
    shown = list(columns)
    while len(shown) > 1 and sum(column.width + GAP for column in shown) - GAP > width:
        least = min(column.keep for column in shown)
        # of equals the rightmost one, since left ones name the row
        shown.remove([column for column in shown if column.keep == least][-1])
    return shown


def choose_columns(
    columns: Sequence[Column[T]],
    width: int,
    *,
    picked: bool = False,
    wanted: Callable[[Column[T]], int] = lambda column: column.grow,
) -> list[tuple[Column[T], int]]:
    """Return the columns that fit, with their widths.

    Args:
        columns: All columns in their order.
        width: The width for them and their gaps.
        picked: True to ignore ``instead``: the user chose the columns, or names show a tree.
        wanted: Returns the width of the longest text of a column that can grow. What a column has more than
            that is for others.
    """
    shown = _fitting(columns, width)
    for column in columns if len(shown) < len(columns) and not picked else ():
        if column.instead:
            without = _fitting([one for one in columns if one.key != column.instead], width)
            shown = without if column in without else _fitting([c for c in columns if c is not column], width)
    spare = width - sum(column.width + GAP for column in shown) + GAP
    widths = {column.key: min(column.width, width) for column in shown}
    more = {c.key: min(wanted(c), c.grow) - c.width for c in shown if c.grow > c.width}
    growing = [column for column in shown if more.get(column.key, 0) > 0]
    for column in shown:  # shorter texts give way to longer ones
        if (less := -more.get(column.key, 0)) > 0 and spare < sum(more[one.key] for one in growing):
            widths[column.key] -= less
            spare += less
    # smallest demand first, whose rest is for the others
    growing.sort(key=lambda column: (column.shortens, more[column.key]))
    for place, column in enumerate(growing):
        room = max(spare, 0)
        if column.whole:
            gained = column.grow - column.width
            gained = gained if gained <= room else 0
        else:
            sharing = sum(one.shortens == column.shortens for one in growing[place:])
            gained = min(more[column.key], room // sharing)
        widths[column.key] += gained
        spare -= gained
    return [(column, widths[column.key]) for column in shown]


class Table(Generic[T]):
    """Rows, their order, and the selected one.

    Rows with equal figures keep their places. While the user reads (``reading``) or the order is frozen, all
    rows do, and new ones come last.
    """

    def __init__(
        self,
        columns: Sequence[Column[T]],
        key: Callable[[T], Hashable],
        sort_key: str,
        words: Callable[[T], str] | None = None,
        ended: Callable[[T], bool] | None = None,
    ) -> None:
        """Create an empty table.

        Args:
            columns: All columns.
            key: Returns a row's identity.
            sort_key: The column to sort by at first.
            words: Returns the text of a row to search in.
            ended: Rows for which it is true come last in any order.
        """
        self.search = ""  # only rows that contain this are shown
        self.left_out = 0  # rows hidden by the search
        self._words = words
        self._ended = ended
        self.columns = self.every = tuple(columns)
        self.selected: Hashable | None = None
        self.proposed: Hashable | None = None  # selected until the user chooses a row
        self.frozen = False
        self.reading = False
        self.held = False  # the selected row always stays in sight
        self.arrange: Callable[[list[Hashable]], list[Hashable]] = lambda order: order
        self.sorted_as: Mapping[Hashable, T] = {}  # by key, rows with the figures to sort by
        self.rows: list[T] = []
        self._key = key
        self._order: list[Hashable] = []
        self._resorts = True  # even while reading
        self._shown_ns = 0  # the time of the last frame
        self._spans: list[tuple[int, int, Column[T]]] = []
        self.chosen = False  # True if the user put the cursor on its row
        self._had: dict[str, int] = {}  # by column, when a row had a value
        self._longest: dict[str, tuple[int, int]] = {}  # by column, the width of a text, and when
        self._picked = False  # True if the user chose the columns: empty ones are shown, too
        self.sort_by(sort_key)

    def show_columns(self, keys: Sequence[str]) -> None:
        """Show only these columns, at least one, in this order."""
        by_key = {column.key: column for column in self.every}
        self.columns = tuple(by_key[key] for key in keys)
        self._picked = True
        if self.sort_column not in self.columns:
            self.sort_by(self.columns[0].key)

    @property
    def picked_columns(self) -> tuple[str, ...]:
        """Keys of the columns chosen by the user; () if none."""
        return tuple(column.key for column in self.columns) if self._picked else ()

    def pick_columns(self, keys: Sequence[str]) -> None:
        """Show these columns; the defaults for ()."""
        if keys:
            self.show_columns(keys)
        else:
            self.columns, self._picked = self.every, False

    def sort_by(self, key: str) -> None:
        """Sort by a column in its usual direction."""
        self.sort_column = next(column for column in self.columns if column.key == key)
        self.descending = self.sort_column.descending
        self._resorts = True

    def shift_sort(self, by: int) -> None:
        """Sort by a neighbouring column, even one out of sight."""
        keys = [column.key for column in self._there()]
        if self.sort_column.key not in keys:
            keys.append(self.sort_column.key)
        self.sort_by(keys[(keys.index(self.sort_column.key) + by) % len(keys)])

    def resort(self) -> None:
        """Sort the next rows anew, unless the order is frozen."""
        self._resorts = self._resorts or not self.frozen

    def reverse(self) -> None:
        self.descending = not self.descending
        self._resorts = True

    def reset(self) -> None:
        """Drop order and selection, for other content."""
        self._resorts = True
        self._order = []
        self.selected = None
        self.chosen = False

    def update(self, rows: Sequence[T], time_ns: int) -> None:
        """Show the rows of a frame."""
        by_key = {self._key(row): row for row in rows if self._found(row)}
        self.left_out = len(rows) - len(by_key)
        reading = self.reading and abs(time_ns - self._shown_ns) < FAR_NS
        self._shown_ns = time_ns
        if self._resorts or not (self.frozen or reading):
            self._order = self._sorted(by_key)
            self._resorts = False
        else:
            known = set(self._order)
            self._order = [k for k in self._order if k in by_key] + [k for k in by_key if k not in known]
            self._order = self.arrange(self._order)
        index = self.index
        self.rows = [by_key[key] for key in self._order]
        if self.rows and not self.chosen:
            self.selected = self.proposed if self.proposed in by_key else self._order[0]
        elif self.selected not in by_key and self.rows:
            self.selected = self._order[min(max(index, 0), len(self.rows) - 1)]

    def _value(self, key: Hashable, row: T) -> float | str:
        """Return the value to sort a row by, rounded to the digits shown."""
        value = self.sort_column.sort(self.sorted_as.get(key, row))
        if not isinstance(value, float):
            return value
        return round(value) if _THREE_DIGITS <= value < _MOST_DIGITS else float(f"{value:.3g}")

    def _found(self, row: T) -> bool:
        return not self.search or self._words is None or self.search.lower() in self._words(row).lower()

    def _sorted(self, by_key: dict[Hashable, T]) -> list[Hashable]:
        place = {key: index for index, key in enumerate(self._order)}
        values = {key: self._value(key, row) for key, row in by_key.items()}
        keys = sorted(by_key, key=lambda key: place.get(key, len(place)))
        # stable, also with reverse=True: rows with equal values do not swap
        keys.sort(key=lambda key: values[key], reverse=self.descending)
        if (ended := self._ended) is not None:
            keys.sort(key=lambda key: ended(by_key[key]))
        return self.arrange(keys)

    @property
    def unsorted(self) -> bool:
        """True if the order is kept although sorting would change it."""
        return (self.frozen or self.reading) and self._order != self._sorted(
            {self._key(row): row for row in self.rows}
        )

    @property
    def index(self) -> int:
        """The place of the selected row, -1 without one."""
        return next((i for i, row in enumerate(self.rows) if self._key(row) == self.selected), -1)

    @property
    def selected_row(self) -> T | None:
        return self.rows[self.index] if self.index >= 0 else None

    def move(self, by: int) -> None:
        if self.rows:
            self.select(self._key(self.rows[min(max(self.index + by, 0), len(self.rows) - 1)]))

    def select(self, key: Hashable) -> None:
        self.selected = key
        self.chosen = True

    def select_place(self, place: int) -> None:
        """Select the row at this place, if there is one."""
        if 0 <= place < len(self.rows):
            self.select(self._key(self.rows[place]))

    def column_at(self, x: int) -> Column[T] | None:
        return next((column for start, end, column in self._spans if start <= x < end), None)

    def sort_or_reverse(self, column: Column[T]) -> None:
        """Sort by a column, or reverse the order if it is sorted by it."""
        if column is self.sort_column:
            self.reverse()
        else:
            self.sort_by(column.key)

    def lines(
        self,
        context: Context,
        width: int,
        top: int,
        count: int,
        *,
        focused: bool,
        mark: bool,
        row_token: Callable[[T], str],
    ) -> list[Line]:
        """Return the heading and the visible rows, in lines of ``width`` columns.

        Args:
            context: The context of the cells.
            width: The width in columns.
            top: The first visible row.
            count: The number of visible rows.
            focused: True if the table has the focus.
            mark: True to mark the selected row without the focus.
            row_token: Returns the token of cells without their own.
        """
        lead = 1  # the column of the cursor sign
        there = self._there()
        visible = self.rows[top : top + count]
        chosen = choose_columns(
            there,
            width - lead,
            picked=self._picked or bool(context.leads),
            wanted=lambda column: self._wanted(column, visible, context),
        )
        self._spans = self._place(chosen, lead)
        out = [self._heading(chosen, context.glyphs, lead, width)]
        glyphs = context.glyphs
        for row in visible:
            selected = (focused or mark) and self._key(row) == self.selected
            token = row_token(row)
            suffix = ("+select" if focused else "+mark") if selected else ""
            spans: list[Span] = [(context.glyphs.cursor if selected else " ", "cursor" + suffix)]
            for place, (column, columns) in enumerate(chosen):
                text, own = column.cell(row, context, columns)
                text = glyphs.fit(text, columns, right=column.right)
                spans.append((text if place == 0 else " " + text, (own or token) + suffix))
            out.append(merged(glyphs.line(spans, width, token=token + suffix)))
        return out

    def _there(self) -> Sequence[Column[T]]:
        """Return the columns to show, whether they fit or not."""
        if self._picked:
            return self.columns
        return [column for column in self.columns if self._has(column)]

    def _has(self, column: Column[T]) -> bool:
        """True if any row has a value, or had one a short while ago."""
        if column.has is None:
            return True
        if any(map(column.has, self.rows)):
            self._had[column.key] = self._shown_ns
        return column.key in self._had and self._stays(self._had[column.key])

    def _stays(self, since_ns: int) -> bool:
        return self.reading or abs(self._shown_ns - since_ns) < _STAYS_NS

    def _wanted(self, column: Column[T], rows: Sequence[T], context: Context) -> int:
        """Return the width of a column's longest text: at once if it grows, later if it shrinks."""
        texts = (column.cell(row, context, column.grow)[0].rstrip() for row in rows)
        width = max([len(column.title), *map(width_of, texts)])
        before, since_ns = self._longest.get(column.key, (0, 0))
        if width < before and self._stays(since_ns):
            return before
        self._longest[column.key] = width, self._shown_ns
        return width

    def _place(self, chosen: list[tuple[Column[T], int]], lead: int) -> list[tuple[int, int, Column[T]]]:
        spans, x = [], lead
        for column, columns in chosen:
            spans.append((x, x + columns + GAP, column))
            x += columns + GAP
        return spans

    def _heading(self, chosen: list[tuple[Column[T], int]], glyphs: Glyphs, lead: int, width: int) -> Line:
        text = " " * lead + " ".join(
            fit(c.title, columns, right=c.right, ellipsis="") for c, columns in chosen
        )
        text = fit(text, width, ellipsis="")
        for start, end, column in self._spans:
            if column is self.sort_column:
                arrow = glyphs.descending if self.descending else glyphs.ascending
                # the arrow stands in the gap beside the title
                first = end - GAP - min(len(column.title), end - start - GAP) - 1 if column.right else start
                last = end - GAP if column.right else start + min(len(column.title), end - start - GAP)
                title = text[first:last].strip()
                title = arrow + title if column.right else title + arrow
                title = title if first >= 0 else title[1:]
                spans = [
                    (text[: max(first, 0)], "head"),
                    (title, "head.sort"),
                    (text[max(first, 0) + len(title) :], "head"),
                ]
                return fit_line(merged(spans), width, token="head")
        return ((text, "head"),)

    def hidden_sort(self, glyphs: Glyphs) -> str:
        """Return the sort column if it is out of sight, else ""."""
        if any(column is self.sort_column for _, _, column in self._spans):
            return ""
        return f"by {self.sort_column.title} {glyphs.descending if self.descending else glyphs.ascending}"


UNLIMITED = 200  # width of cells of a copied row


def row_text(columns: Sequence[Column[Any]], row: Any, context: Context) -> str:
    """Return all columns of a row with their headings as one line, for the clipboard."""
    parts = []
    for column in columns:
        text = column.cell(row, context, UNLIMITED)[0].strip()
        if text:
            parts.append(f"{column.title} {text}")
    return "  ".join(parts)


def page_text(lines: Sequence[Line]) -> str:
    """Return a page as text, without trailing blanks."""
    return "\n".join(plain(line).rstrip() for line in lines)
