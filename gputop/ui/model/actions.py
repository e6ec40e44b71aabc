"""The one table of actions: key bindings, footer and help are made from it and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

_FILTER = "list only some processes: text, !regex, gpu: user: call: state: pid: name: command:"
_TREE = "processes under the one that started them, folded with the sums; or a list"
_FOLLOW = "follow the selected process: it stays selected, listed and in sight"
_SIGNAL = "send the selected process a signal: a menu, and a question before it is sent"

LIVE, REPLAY = "live", "replay"
_BOTH = frozenset({LIVE, REPLAY})
_OPEN = "the verdict: its chain; a process: its calls; a call: its histogram; a GPU: its page; else zoom"
_SOURCE = "the line of Python that makes the calls, in its file; lines: Enter"
_TIMELINE = "show or hide the timeline; on it , . choose the time, up and down the thread"
_PAUSE = "pause or play; live data is still collected"
_BACK = "one mark back; live: pause and step back through the last ten minutes"
_EARLIER = "to the finding (!) or marker (M) before, on the bar of time"
_LATER = "to the next finding or marker; ~ is where events were lost or nothing was recorded"
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
        harms: Whether it changes other processes: not with ``--readonly``.
    """

    name: str
    keys: tuple[str, ...]
    shown: str
    footer: str
    help: str
    group: str
    rank: int = 9
    contexts: frozenset[str] = _BOTH
    harms: bool = False


ACTIONS: tuple[Action, ...] = (
    Action("open", ("enter",), "Enter", "Enter|open", _OPEN, "Move", 1),
    Action("why", ("w",), "w", "w|why", "why the GPU waits: all findings and their chains", "Move", 2),
    Action("source", ("s",), "s", "s|source", _SOURCE, "Move", 7),
    Action(
        "back",
        ("escape", "backspace"),
        "Esc",
        "",
        "back out: close, unzoom, list all, to the verdict",
        "Move",
    ),
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
        "next pane: verdict, processes, calls, threads, lines, timeline, GPUs, findings",
        "Move",
        6,
    ),
    Action("previous_pane", ("shift+tab",), "S-Tab", "", "previous pane", "Move"),
    Action("zoom", ("z",), "z", "z|zoom", "the focused pane takes the screen, or gives it back", "Move", 7),
    Action("timeline", ("t", "6"), "t 6", "t|timeline", _TIMELINE, "Move", 7),
    Action("sort_left", ("comma",), ",", "", "sort the focused table by the column to the left", "Table"),
    Action("sort_right", ("full_stop",), ".", ", .|sort", "sort by the column to the right", "Table", 5),
    Action("reverse", ("r",), "r", "r|reverse", "reverse the sort order", "Table", 8),
    Action("freeze", ("o",), "o", "o|freeze", "freeze the order of the rows, values go on", "Table", 9),
    Action("filter", ("slash",), "/", "/|filter", _FILTER, "Table", 4),
    Action("gpu", ("g",), "g", "", "only the processes of one GPU: the next one, at last all again", "Table"),
    Action("tree", ("e",), "e", "e|tree", _TREE, "Table", 9),
    Action("fold", ("E",), "E", "", "fold or unfold the branch of the selected process", "Table"),
    Action("follow", ("f",), "f", "f|follow", _FOLLOW, "Table", 9),
    *(
        Action(f"pane_{place}", (str(place),), str(place), "", f"show or hide the {name}", "Panes")
        for place, name in enumerate(("GPUs", "processes", "calls", "threads", "storms"), 1)
    ),
    Action("all_panes", ("F",), "F", "", "show all panes again", "Panes"),
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
    Action("signal", ("K",), "K", "", _SIGNAL, "Session", contexts=frozenset({LIVE}), harms=True),
    Action("copy", ("y",), "y", "", "copy the selected row, or the open page, to the clipboard", "Session"),
    Action("export", ("x",), "x", "", "save the frame as JSON in the current directory", "Session"),
    Action("screenshot", ("S",), "S", "", "save the screen as SVG in the current directory", "Session"),
    Action("theme", ("T",), "T", "", "next theme", "Session"),
    Action("palette", ("ctrl+p",), "^P", "", "find an action by its name", "Session"),
    Action("help", ("question_mark", "f1"), "?", "?|help", "this page", "Session"),
    Action("suspend", ("ctrl+z",), "^Z", "", "suspend; fg in the shell brings it back", "Session"),
    Action("quit", ("q",), "q", "q|quit", "close what is open, else quit", "Session"),
    Action("quit_now", ("ctrl+c", "ctrl+q"), "^C", "", "quit", "Session"),
)


def actions_of(mode: str, *, readonly: bool = False) -> tuple[Action, ...]:
    """The actions that work live or in a replay.

    Args:
        mode: ``live`` or ``replay``.
        readonly: Whether other processes are to be left alone.
    """
    return tuple(action for action in ACTIONS if mode in action.contexts and not (readonly and action.harms))


def why_not(name: str, mode: str) -> str:
    """Why an action of the table does nothing here, for the last line of the screen."""
    action = next((one for one in ACTIONS if one.name == name), None)
    if action is None:
        return ""
    if mode not in action.contexts:
        return f"{action.shown} is for a live screen: this is a recording, which is only read"
    return f"{action.shown} is off: gputop was started with --readonly"
