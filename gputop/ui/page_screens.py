"""The pages: screens with one scrolling text between the header and the keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size

from gputop.engine.calls.source_text import read_source
from gputop.format import escape_text
from gputop.ui.model import pages
from gputop.ui.model.answer.summary import summary_lines
from gputop.ui.model.answer.why import ended_text
from gputop.ui.model.gpus import gpu_history, gpu_page, machine_page
from gputop.ui.model.look import Line
from gputop.ui.model.own_cost import OwnCost, shortened_sentence
from gputop.ui.model.process import callpage
from gputop.ui.model.process.source_page import SourceText
from gputop.ui.model.table import page_text
from gputop.ui.model.view import View
from gputop.ui.panes.key_line import Keys
from gputop.ui.panes.pane import Heading, Pane, quiet_key
from gputop.ui.panes.small_panes import Banner, Header, TimeBar, TooSmall
from gputop.ui.panes.time_keys import TimeScreen
from gputop.ui.panes.why_pane import WhyPane

if TYPE_CHECKING:
    from gputop.engine.calls.stack_table import Line as SourceLine

_BACK = "[Esc] back"
_TALL = 36  # lines of a screen whose pages have room for more and higher graphs


class PageText(Pane):
    """The text of a page."""

    def __init__(self, view: View, page: Page) -> None:
        super().__init__(view, id="text")
        self._page = page

    def heading(self) -> Heading:
        below = self.virtual_size.height - round(self.scroll_y) - self.size.height
        right = f"+{below} row{'s' if below > 1 else ''} {_BACK}" if below > 0 else _BACK
        return [(self._page.heading(), "")], right

    def lines(self, width: int, height: int) -> Sequence[Line]:
        glyphs = self.view.glyphs
        head, lines = self._page.head(width), self._page.lines(width)
        self.virtual_size = Size(0, len(head) + len(lines))
        top = round(self.scroll_y)
        shown = [*head, *lines[top : top + height - len(head)]]
        return [glyphs.line(line, width) for line in shown]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable scrolling by Up and Down on pages where they choose something."""
        return action not in ("scroll_up", "scroll_down") or not self._page.chooses


class Page(TimeScreen):
    """A text over the whole screen.

    Attributes:
        view: The state of the screen.
        chooses: True if Up and Down choose something on it.
    """

    chooses = False
    AUTO_FOCUS = "#text"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-thin"),
        (40, "-narrow"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-flat"),
        (10, "-low"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,enter", "back", "Back", key_display="Esc", tooltip="back"),
        quiet_key("w", "why", "Why"),
        Binding("y", "copy", "Copy", tooltip="copy the page, or marked text"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def panes(self) -> ComposeResult:
        yield TooSmall(self.view)
        yield Header(self.view)
        yield WhyPane(self.view)
        yield Banner(self.view)
        yield PageText(self.view, self)
        yield TimeBar(self.view)
        yield Keys(self.view)

    def heading(self) -> str:
        """Return the title."""
        return self.title or ""

    def head(self, width: int) -> Sequence[Line]:
        """Return lines that do not scroll."""
        return ()

    @abstractmethod
    def lines(self, width: int) -> Sequence[Line]:
        """Return all lines that scroll."""

    def action_back(self) -> None:
        self.dismiss()

    def action_why(self) -> None:
        self.app.push_screen(WhyPage(self.view))

    def action_copy(self) -> None:
        width = self.query_one("#text").size.width
        text = self.get_selected_text() or page_text([*self.head(width), *self.lines(width)])
        self.app.copy(text)


class SummaryPage(Page):
    """A process's run time, steps, idle time, causes, energy and recording."""

    TITLE = "Summary"

    def __init__(self, view: View, pid: int) -> None:
        super().__init__(view)
        self._pid = pid

    def lines(self, width: int) -> Sequence[Line]:
        view, frame = self.view, self.view.frame
        if frame is None:
            return []
        run, ended = view.runs.of(self._pid), view.explained.ended
        how = ""
        if run is not None and run.row.exited_ns is not None:
            same = ended is not None and ended.pid == self._pid
            how = (
                ended_text(ended, frame.time_ns)
                if same and ended is not None
                else view.outcome or "it has ended"
            )
        recorded = view.recorded or (view.title if view.mode == "replay" else "")
        return summary_lines(run, frame, how, recorded, width, view.glyphs)


class WhyPage(Page):
    """All findings, and the chain of the selected one."""

    chooses = True
    TITLE = "Why the GPU waits"
    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("up,k", "finding(-1)", "Up", "the finding above"),
        quiet_key("down,j", "finding(1)", "Down", "the finding below"),
        quiet_key("tab", "moment(1)", "Moment", "its next worst moment"),
        quiet_key("shift+tab", "moment(-1)", "Moment", "its previous worst moment"),
        Binding("enter", "go", "Go there", tooltip="go to the selected moment"),
        Binding("s", "source", "Source", tooltip="open the finding's source line"),
        quiet_key("w", "back", "Back", "close this page"),
    ]

    def lines(self, width: int) -> Sequence[Line]:
        return self.view.chain.lines(width, self.view.glyphs, replay=True)

    def action_finding(self, by: int) -> None:
        self.view.chain.move(by)
        self.query_one(PageText).scroll_home(animate=False)
        self.show()

    def action_moment(self, by: int) -> None:
        self.view.chain.move_moment(by)
        self.show()

    def action_go(self) -> None:
        moment = self.view.chain.moment_ns
        self.dismiss()
        if moment is not None:
            self.go_to_moment(moment)

    def action_source(self) -> None:
        finding = self.view.chain.selected
        line, pid = (finding.line, finding.pid) if finding else (None, 0)
        self.app.push_screen(SourcePage(self.view, line, pid))


class SourcePage(Page):
    """A line in its file."""

    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("s", "back", "Back", "close this page"),
    ]

    def __init__(self, view: View, line: SourceLine | None, pid: int) -> None:
        """Read the file.

        Args:
            view: The state of the screen.
            line: The line, or None.
            pid: The process whose calls are counted.
        """
        super().__init__(view)
        source = read_source(line, pid if view.mode == "live" else None) if line is not None else None
        self._text = SourceText(line, pid, source)
        self.title = self._text.title

    def on_mount(self) -> None:
        self.call_after_refresh(self._centre)

    def _centre(self) -> None:
        top = max(self._text.place - max(self.app.size.height // 2 - 3, 1), 0)
        text = self.query_one(PageText)
        text.show()  # sets its length
        text.scroll_to(y=top, animate=False, force=True)

    def head(self, width: int) -> Sequence[Line]:
        return self._text.head(self.view.frame, width, self.view.glyphs)

    def lines(self, width: int) -> Sequence[Line]:
        return self._text.lines(self.view.frame, width, self.view.glyphs)


class CallPage(Page):
    """Durations of the calls of the selected function."""

    chooses = True
    TITLE = "Call"
    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("up,k", "call(-1)", "Up", "the call above"),
        quiet_key("down,j", "call(1)", "Down", "the call below"),
    ]

    def lines(self, width: int) -> Sequence[Line]:
        frame = self.view.frame
        row = self.view.calls.selected_row
        return callpage.call_page(row, frame.window_ns if frame else 1, width, self.view.glyphs)

    def action_call(self, by: int) -> None:
        self.view.calls.move(by)
        self.show()


class GpuPage(Page):
    """All figures of one GPU."""

    chooses = True
    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("up,k", "gpu(-1)", "Up", "the GPU before"),
        quiet_key("down,j", "gpu(1)", "Down", "the next GPU"),
    ]

    def heading(self) -> str:
        gpu, frame = self.view.gpu, self.view.frame
        gpus = frame.gpus if frame else ()
        name = f"GPU {gpu.index}" if gpu is not None else "GPU"
        return name + (f" of {len(gpus)} GPUs  Up Down other GPU" if len(gpus) > 1 else "")

    def lines(self, width: int) -> Sequence[Line]:
        view, gpu, frame = self.view, self.view.gpu, self.view.frame
        if gpu is None or frame is None:
            return ()
        tall = self.app.size.height >= _TALL
        graphs = gpu_history.page_lines(view.gpu_history, frame, gpu, width, view.glyphs, tall=tall)
        return gpu_page.page(gpu, graphs, width, view.glyphs)

    def action_gpu(self, by: int) -> None:
        self.view.move_gpu(by)
        self.query_one(PageText).scroll_home(animate=False)
        self.show()


class MachinePage(Page):
    """The machine's CPUs, memory, disks and network."""

    TITLE = "Machine"
    BINDINGS: ClassVar[list[BindingType]] = [quiet_key("H", "back", "Back", "close this page")]

    def lines(self, width: int) -> Sequence[Line]:
        view, frame = self.view, self.view.frame
        if frame is None:
            return ()
        live, tall = view.mode == "live", self.app.size.height >= _TALL
        of = view.machine_history, view.gpu_history
        return machine_page.page(frame, *of, width, view.glyphs, live=live, tall=tall)


class ProblemsPage(Page):
    """Everything that could not be observed."""

    TITLE = "Problems and notes"
    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("exclamation_mark", "back", "Back", "close this page"),
    ]

    def lines(self, width: int) -> Sequence[Line]:
        view = self.view
        reduced = view.reduced(OwnCost.sentence, shortened_sentence)
        return pages.problems_page(view.problem_frame, view.failure, width, view.glyphs, reduced)


class HelpPage(Page):
    """All keys, and the meaning of the columns."""

    TITLE = "Help"
    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("question_mark,f1", "dismiss", "Back", "close this page"),
        Binding("slash", "search", "Search", tooltip="search the keys and columns for a text"),
    ]

    def __init__(self, view: View, places: Iterable[tuple[str, Any]]) -> None:
        """Collect the keys.

        Args:
            view: The state of the screen.
            places: Widgets and screens with keys, each with its title.
        """
        super().__init__(view)
        listed = set[str]()
        self._search = ""
        self._groups = [(title, entries) for title, node in places if (entries := self._keys(node, listed))]

    @staticmethod
    def _keys(node: Any, before: set[str]) -> list[tuple[str, str]]:
        groups: dict[str, list[Binding]] = {}
        for cls in type(node).__mro__:
            for binding in cls.__dict__.get("BINDINGS", ()):
                if isinstance(binding, Binding) and binding.tooltip and binding.tooltip not in before:
                    groups.setdefault(binding.tooltip, []).append(binding)
        before.update(groups)
        return [
            (" ".join(_shown(binding) for binding in bindings), text)
            for text, bindings in groups.items()
            if node.check_action(bindings[0].action.partition("(")[0], ()) is not False
        ]

    def lines(self, width: int) -> Sequence[Line]:
        return pages.help_page(self._groups, width, self.view.glyphs, self._search)

    def heading(self) -> str:
        return f"Help  search {escape_text(self._search)} [/]" if self._search else "Help"

    def action_search(self) -> None:

        def apply(text: str) -> None:
            self._search = text
            self.query_one(PageText).scroll_home(animate=False)
            self.show()

        self.app.prompt_text("search help", self._search, apply, hint="a part of a text")

    def action_back(self) -> None:
        """Clear the search, or close the page."""
        if self._search:
            self._search = ""
            self.show()
        else:
            self.dismiss()


_SHOWN = {
    "comma": ",", "full_stop": ".", "slash": "/", "question_mark": "?", "exclamation_mark": "!", "minus": "-",
    "equals_sign": "=", "plus": "+", "left_square_bracket": "[", "right_square_bracket": "]",
    "left_curly_bracket": "{", "right_curly_bracket": "}", "escape": "Esc", "enter": "Enter",
    "pageup": "PgUp",
    "pagedown": "PgDn", "home": "Home", "end": "End", "up": "Up", "down": "Down", "left": "Left",
    "right": "Right",
    "tab": "Tab", "shift+tab": "S-Tab", "backspace": "Bksp", "f1": "F1",
}  # fmt: skip


def _shown(binding: Binding) -> str:
    return " ".join(_SHOWN.get(key, key.replace("ctrl+", "^")) for key in binding.key.split(","))
