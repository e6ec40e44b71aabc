"""The one table of actions: key bindings, footer and help are made from it and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

LIVE, REPLAY = "live", "replay"
_BOTH = frozenset({LIVE, REPLAY})
_OPEN = "the verdict: its chain; a process: its calls; again: zoom"
_PAUSE = "pause or play; live data is still collected"
_BACK = "one mark back; live: pause and step back through the last ten minutes"
_EARLIER = "to the finding (!) or marker (M) before, on the bar of time"
_LATER = "to the next finding or marker"
_RECORD = "record on or off; what is kept of the past can be included"


@dataclass(frozen=True, slots=True)
class Action:
    """Something a key does.

    Attributes:
        name: The method ``do_NAME`` of the presenter or of the app.
        keys: Textual's names of the keys.
        shown: The keys as a person reads them.
        footer: Keys and a word for the footer (``, .|sort``), "" keeps it out of the footer.
        help: What it does, for the help screen.
        group: The heading in the help screen.
        rank: The higher, the earlier it leaves a narrow footer.
        contexts: Where it works: live, replay.
    """

    name: str
    keys: tuple[str, ...]
    shown: str
    footer: str
    help: str
    group: str
    rank: int = 9
    contexts: frozenset[str] = _BOTH


ACTIONS: tuple[Action, ...] = (
    Action("open", ("enter",), "Enter", "Enter|open", _OPEN, "Move", 1),
    Action("why", ("w",), "w", "w|why", "why the GPU waits: all findings and their chains", "Move", 2),
    Action("back", ("escape", "backspace"), "Esc", "", "back out: close, unzoom, to the verdict", "Move"),
    Action("up", ("up", "k"), "Up k", "", "select the row above", "Move"),
    Action("down", ("down", "j"), "Down j", "", "select the row below", "Move"),
    Action("page_up", ("pageup",), "PgUp", "", "one page up", "Move"),
    Action("page_down", ("pagedown",), "PgDn", "", "one page down", "Move"),
    Action("home", ("home",), "Home", "", "first row; paused or in a replay: the oldest moment", "Move"),
    Action("end", ("end",), "End", "", "last row; paused or in a replay: the newest moment", "Move"),
    Action(
        "next_pane",
        ("tab",),
        "Tab",
        "Tab|pane",
        "next pane: verdict, processes, calls, threads, GPUs",
        "Move",
        6,
    ),
    Action("previous_pane", ("shift+tab",), "S-Tab", "", "previous pane", "Move"),
    Action("zoom", ("z",), "z", "z|zoom", "the focused pane takes the screen, or gives it back", "Move", 7),
    Action("sort_left", ("comma",), ",", "", "sort the focused table by the column to the left", "Table"),
    Action("sort_right", ("full_stop",), ".", ", .|sort", "sort by the column to the right", "Table", 5),
    Action("reverse", ("r",), "r", "r|reverse", "reverse the sort order", "Table", 8),
    Action("freeze", ("o",), "o", "o|freeze", "freeze the order of the rows, values go on", "Table", 9),
    Action("pause", ("space",), "space", "space|pause", _PAUSE, "Time", 2),
    Action("step_back", ("left_square_bracket",), "[", "", _BACK, "Time"),
    Action("step", ("right_square_bracket",), "]", "[ ]|step", "one mark forward", "Time", 3),
    Action("previous_finding", ("left_curly_bracket",), "{", "", _EARLIER, "Time"),
    Action("next_finding", ("right_curly_bracket",), "}", "{ }|finding", _LATER, "Time", 5),
    Action("slower", ("minus",), "-", "", "half the speed, down to 0.25", "Time"),
    Action("faster", ("equals_sign", "plus"), "=", "- =|speed", "twice the speed, up to 64", "Time", 7),
    Action("jump", ("J",), "J", "J|jump", "go to a moment: -30s, 14:02, 50%, 12.5", "Time", 6),
    Action("newest", ("L",), "L", "", "to the newest frame, and on with it", "Time"),
    Action("mark", ("m",), "m", "", "mark this moment with a note", "Time"),
    Action("record", ("R",), "R", "R|record", _RECORD, "Session", 5, frozenset({LIVE})),
    Action("log", ("l",), "l", "l|log", "show or hide the output of the started command", "Session", 2),
    Action("problems", ("exclamation_mark",), "!", "", "what could not be observed, in full", "Session"),
    Action("help", ("question_mark", "f1"), "?", "?|help", "this page", "Session"),
    Action("suspend", ("ctrl+z",), "^Z", "", "suspend; fg in the shell brings it back", "Session"),
    Action("quit", ("q",), "q", "q|quit", "close what is open, else quit", "Session"),
    Action("quit_now", ("ctrl+c", "ctrl+q"), "^C", "", "quit", "Session"),
)


def actions_of(mode: str) -> tuple[Action, ...]:
    """The actions that work live or in a replay.

    Args:
        mode: ``live`` or ``replay``.
    """
    return tuple(action for action in ACTIONS if mode in action.contexts)
