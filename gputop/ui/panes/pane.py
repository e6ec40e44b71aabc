"""The base of all panes: lines of text, of which only changed ones are painted again."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.errors import NoWidget
from textual.geometry import Offset, Region, Size
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from gputop.format import escape_text, width_of
from gputop.playback.feed import Feed
from gputop.process.textual_app import SureTimers
from gputop.ui.model.look import Line, Span, ascii_line, line_width, plain
from gputop.ui.model.view import View
from gputop.ui.terminal.palette import Palette

if TYPE_CHECKING:
    from typing_extensions import Self

    from gputop.ui.sender import OwnSender

_KEY = re.compile(r"\[([^\s\[\]]+)\]")
_NAMED = {"Esc": "escape", "Enter": "enter", "Tab": "tab"}
Heading = tuple[Sequence[Span], str]
ROOMY = Size(100, 36)  # of a screen with boxes


def quiet_key(keys: str, action: str, name: str, tooltip: str = "") -> Binding:
    """Return a binding that the last line does not show.

    Args:
        keys: Comma-separated, by Textual's names.
        action: The action.
        name: The action in a word.
        tooltip: The action in a sentence, for the help page and the palette; "": in neither.
    """
    return Binding(keys, action, name, show=False, tooltip=tooltip)


class Host(SureTimers):
    """The program's interface for panes and screens."""

    feed: Feed  # the source of frames
    view: View  # the state of the screen
    palette: Palette  # the colours
    sender: OwnSender | None = None  # the sender of signals; None in a replay and with ``--readonly``

    @abstractmethod
    def show(self) -> None:
        """Update all visible panes."""

    @abstractmethod
    def poll(self) -> None:
        """Show a newer frame, if any."""

    @abstractmethod
    def poll_soon(self) -> None:
        """Poll often for the frame that a key has requested."""

    def prompt(self, question: Screen[None]) -> None:
        """Open a dialog, after the current one has closed."""
        self.call_next(self.push_screen, question)

    def prompt_text(self, title: str, before: str, apply: Callable[[str], None], *, hint: str) -> None:
        """Prompt for a text, applied with every key; Escape restores the former one."""
        from gputop.ui.panes.dialogs import Question

        def changed(text: str) -> str:
            apply(text.strip())
            return ""

        cancelled = partial(apply, before)
        self.prompt(Question(title, changed, before, hint=hint, changed=changed, cancelled=cancelled))

    def copy(self, text: str) -> None:
        """Copy a text to the terminal's clipboard."""
        self.copy_to_clipboard(text)
        self.show_message(f"copied if the terminal allows it: {text.splitlines()[0] if text else ''}")

    def show_message(self, text: str) -> None:
        """Show a message; "" removes the current one."""
        self.clear_notifications()
        if text:
            self.notify(text, markup=False)


class Pane(ScrollView, can_focus=True):
    """A part of a screen, whose text comes from pure functions over the view.

    Keys shown in square brackets can be clicked.
    """

    app: Host
    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("k", "scroll_up", ""),
        quiet_key("j", "scroll_down", ""),
    ]

    def __init__(self, view: View, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.view = view
        self.shown_lines: list[Line] = []
        self._title_line: Line = ()
        self._headed: object = None
        self._kept: tuple[Region, list[Strip]] | None = None
        self._measured = (0, 0)  # the layout's width, and the lines wanted for it

    # -- content, defined by each pane --------------------------------------------------------

    def wanted(self, width: int) -> int:
        """Return the number of lines wanted; 0 hides the pane."""
        return 1

    def heading(self) -> Heading | None:
        """Return the left and the right part of the title; None: no title."""
        return None

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """Return the visible lines."""
        return ()

    def more(self) -> str:
        """Return what is out of sight: ``+3 rows``, or ""."""
        return ""

    def clicked(self, x: int, y: int) -> None:
        """Handle a click on a line."""

    # -- painting -----------------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._measured = (width, self.wanted(width))
        return self._measured[1]

    def show(self) -> None:
        """Update the lines; only changed ones are painted."""
        if not self.is_attached:
            return
        wanted = self.wanted(self._measured[0] or self.app.size.width)
        self.set_class(not wanted, "-empty")
        if wanted != self._measured[1] and self.styles.is_auto_height:
            self._measured = (self._measured[0], wanted)
            self.refresh(layout=True)
        if not wanted or not self.display:
            return
        width, height = self.scrollable_content_region.size
        if not width or not height:
            return
        lines = list(self.lines(width, height))
        if self.view.glyphs.ascii:
            lines = [ascii_line(line) for line in lines]
        old, self.shown_lines = self.shown_lines, lines
        longest = max(len(old), len(lines))
        changed = [y for y in range(longest) if y >= len(old) or y >= len(lines) or old[y] != lines[y]]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))
        self._show_heading()

    def _show_heading(self) -> None:
        heading = self.heading()
        wanted = heading, self.has_focus, self.outer_size.width, self.app.palette.name
        if heading is None or wanted == self._headed:
            return
        self._headed = wanted
        left, right = heading
        glyphs = self.view.glyphs
        token = "title.focus" if self.has_focus else "title"
        boxed = self.styles.border_left[0] != ""
        room = self.outer_size.width - (6 if boxed else 2)
        lead = "" if boxed else " "  # a box has a blank there
        start: list[Span] = [(glyphs.cursor if self.has_focus else lead, token)]
        start += [(text, one or token) for text, one in left]
        rule = "rule.focus" if self.has_focus else "rule"
        gap = room - line_width(start) - width_of(right) - 3
        if not right or gap < 1:
            line: Line = tuple(start) if boxed else (*start, (" ", rule))
        else:
            end = right if boxed else f"{right} "
            line = (*start, (" ", rule), (glyphs.rule * (gap + boxed), rule), (f" {end}", "more"))
        if line_width(line) > room:
            line = glyphs.line(line, room)
        self._title_line = ascii_line(line) if glyphs.ascii else line
        styled = ((text, _style(self.app.palette.style(name))) for text, name in self._title_line)
        # setting border_title would paint the whole pane again
        if self._border_title is None:
            self.border_title = Content.assemble(*styled)
        else:
            self._border_title = Content.assemble(*styled)
            self.refresh(Region(-1, -1, self.outer_size.width, 1))

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> Self:
        """Paint regions again."""
        self._kept = None
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def notify_style_update(self) -> None:
        self._kept = None
        super().notify_style_update()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the painted lines; kept ones while nothing has changed, as beside a pane that has."""
        if self._kept is None or self._kept[0] != crop:
            strips = super().render_lines(crop)
            if crop.size != self.outer_size:
                return strips
            self._kept = crop, strips
        return self._kept[1]

    def render_line(self, y: int) -> Strip:
        width, palette = self.size.width, self.app.palette
        if y >= len(self.shown_lines):
            return Strip.blank(width, palette.style(""))
        # lines are escaped where they are made; this is a second barrier
        strip = Strip([Segment(_safe(text), palette.style(token)) for text, token in self.shown_lines[y]])
        # after a resize, lines have the old width until the next update
        strip = strip.adjust_cell_length(width, palette.style(""))
        selection = self.text_selection
        span = selection.get_span(y) if selection is not None else None
        if span is None:
            return strip
        start, end = span[0], width if span[1] < 0 else span[1]
        parts = strip.divide([start, min(end, width), width])
        return Strip.join([parts[0], parts[1].apply_style(palette.style("+select")), *parts[2:]])

    # -- Textual's events ---------------------------------------------------------------------

    def on_resize(self) -> None:
        self.show()

    def on_mount(self) -> None:
        """Show the lines once the layout has set the size."""
        self.call_after_refresh(self.show)

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self.show()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self.show()

    def on_click(self, event: events.Click) -> None:
        """Handle a click on a key in the text or the title, or on a line."""
        at = event.get_content_offset(self)
        if at is not None:
            key = key_at(plain(self.shown_lines[at.y]), at.x) if at.y < len(self.shown_lines) else ""
        else:
            key = key_at(plain(self._title_line), event.x - (2 if self.styles.border_left[0] else 0))
        if key:
            self.app.simulate_key(key)
        elif at is not None:
            self.clicked(at.x, at.y)

    # -- text selected with the mouse ---------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(plain(line).rstrip() for line in self.shown_lines)), "\n"

    def changed(self) -> None:
        """Update the whole screen after a choice in this pane."""
        self.app.show()


class Plain(Pane, can_focus=False):
    """A pane that cannot have the focus."""


_style = lru_cache(maxsize=256)(Style.from_rich_style)
_safe = lru_cache(maxsize=4_096)(escape_text)  # slow for blocks and graphs


class Tabbed(Pane):
    """A pane about the selected process, with a tab.

    Attributes:
        name_shown: The tab's label.
        beside: The line beside the tabs, which shows what is out of sight here.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", tooltip="search these rows for a text"),
    ]
    name_shown = ""
    beside: Plain | None = None
    _searched = ""

    def show(self) -> None:
        """Update the lines, and the line beside the tabs."""
        super().show()
        if self.beside is not None and self.display:
            self.beside.show()

    @property
    def needed(self) -> bool:
        """True if the tab exists; tabs that rarely have data exist only while they do."""
        return True

    @property
    def searched(self) -> str:
        """The text that rows must contain, "" for all rows."""
        return self._searched

    @searched.setter
    def searched(self, text: str) -> None:
        self._searched = text

    def action_search(self) -> None:
        """Prompt for a text that rows must contain; Escape restores the former one."""

        def apply(text: str) -> None:
            self.searched = text
            self.view.list()
            self.app.show()

        hint = "a part of a row's text, in any case"
        self.app.prompt_text(f"search {self.name_shown}", self.searched, apply, hint=hint)

    def searching(self) -> list[Span]:
        """Return the search for the title."""
        text = self.view.glyphs.shown(self.searched)
        return [(f"  search {text} [/]", "chrome")] if text else []

    def about(self) -> list[Span]:
        """Return the text beside the tabs: the process."""
        row = self.view.selected
        if row is None:
            return [(" no process selected", "dim")]
        name = self.view.glyphs.shown(row.name)
        return [(f" of {row.pid} {name}", "dim"), *self.searching()]


def key_at(text: str, x: int) -> str:
    """Return the key named in square brackets at a column, or ""."""
    for found in _KEY.finditer(text):
        if width_of(text[: found.start()]) <= x < width_of(text[: found.end()]):
            return _NAMED.get(found[1], found[1]) if len(found[1]) == 1 or found[1] in _NAMED else ""
    return ""


class PaneScreen(Screen[None]):
    """A screen of panes."""

    app: Host
    _panes: Sequence[Pane] = ()
    _styled = False

    def compose(self) -> ComposeResult:
        """Yield the panes, after setting the size's classes: Textual would style all panes twice."""
        for length, breakpoints in (
            (self.app.size.width, self.HORIZONTAL_BREAKPOINTS),
            (self.app.size.height, self.VERTICAL_BREAKPOINTS),
        ):
            self.add_class([name for least, name in breakpoints or () if length >= least][-1])
        self.on_resize()
        yield from self.panes()

    @abstractmethod
    def panes(self) -> ComposeResult:
        """Yield the panes from the top."""

    def on_resize(self) -> None:
        """Put the panes into boxes if there is room."""
        size = self.app.size
        self.set_class(size.width >= ROOMY.width and size.height >= ROOMY.height, "-roomy")

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Update the panes: a page that has closed may have changed a choice."""
        event.refresh_styles, self._styled = self._styled, True
        self.show()

    def show(self) -> None:
        """Update all panes."""
        self._panes = self._panes or list(self.query(Pane))
        for pane in self._panes:
            pane.show()

    def get_widget_and_offset_at(self, x: int, y: int) -> tuple[Widget | None, Offset | None]:
        """Return the widget and the offset of a text selection; in panes by the cell's place."""
        try:
            widget, _region = self.get_widget_at(x, y)
        except NoWidget:
            return None, None
        if not isinstance(widget, Pane):
            return super().get_widget_and_offset_at(x, y)
        content = widget.content_region
        return widget, Offset(max(x - content.x, 0), max(y - content.y, 0))
