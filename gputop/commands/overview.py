"""The list of commands, of ``gputop --help`` and docs/commands.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command in the list."""

    typed: str  # the command with its usual arguments, without ``gputop``
    summary: str  # its purpose in a few words
    module: str  # the module with its ``COMMAND``, imported by need


LIVE = ""  # the command without a name, which shows the screen
_DAEMON, _SESSION, _RECORDINGS, _SHOWING = (
    f"gputop.commands.{room}." for room in ("daemon", "files", "recordings", "screen")
)
_SCREEN = (
    CommandRow("", "every process that uses CUDA, live", ""),
    CommandRow("--pid PID", "a process and its descendants", ""),
    CommandRow("-- CMD ARGS…", "start a program, watch it from its first call", ""),
)
_WATCH = {
    "replay": CommandRow(
        "replay FILE", "a recording in the same screen; or gputop FILE", _SHOWING + "replay"
    ),
    "web": CommandRow("web [FILE]", "the screen in a browser, read-only", _SHOWING + "web"),
    "stream": CommandRow("stream --jsonl", "one frame per line as JSON", _SHOWING + "stream"),
    "check": CommandRow("check", "what can be observed here, and what is missing", _SHOWING + "check"),
}
_EXPLAIN = {
    "explain": CommandRow(
        "explain FILE", "why the GPU is idle; also: explain -- CMD", _RECORDINGS + "explain"
    ),
    "record": CommandRow("record -o FILE", "record without a screen", _RECORDINGS + "record"),
    "diff": CommandRow("diff BEFORE AFTER", "whether a change helped", _RECORDINGS + "diff"),
    "stats": CommandRow("stats FILE", "totals: calls, context switches, GPUs", _RECORDINGS + "stats"),
    "report": CommandRow(
        "report FILE -o PAGE", "one HTML page to send to a colleague", _RECORDINGS + "html_report"
    ),
    "mcp": CommandRow("mcp FILE|FOLDER…", "let an AI assistant query recordings (MCP)", _RECORDINGS + "mcp"),
}
_FILES = {
    "export": CommandRow(
        "export FILE --to FORM", "to Perfetto, Parquet, CSV or speedscope", _SESSION + "export"
    ),
    "import": CommandRow(
        "import TRACE -o FILE", "from torch.profiler, Nsight Systems or Ingero", _SESSION + "import_"
    ),
    "sql": CommandRow('sql "SELECT …" FILE', "query a recording in SQL", _RECORDINGS + "sql"),
    "inspect": CommandRow(
        "inspect FILE", "machine, probes, overhead, losses and sizes", _SESSION + "inspect"
    ),
    "verify": CommandRow("verify FILE", "check a recording against its checksums", _SESSION + "verify"),
    "repair": CommandRow(
        "repair FILE -o OUT", "save the intact part of a damaged recording", _SESSION + "repair"
    ),
    "cut": CommandRow("cut FILE -o OUT", "a part of a recording", _SESSION + "cut"),
    "merge": CommandRow("merge FILE… -o OUT", "ranks or nodes as one recording", _SESSION + "merge"),
    "redact": CommandRow(
        "redact FILE -o OUT", "a copy without hosts, users, paths and names", _SESSION + "redact"
    ),
}
_ALWAYS = {
    "serve": CommandRow("serve", "a daemon that observes for all users (root)", _DAEMON + "serve"),
    "attach": CommandRow("attach", "the screen over the daemon's data; no root", _DAEMON + "attach"),
    "dump": CommandRow("dump -o FILE", "the daemon's last minutes as a recording", _DAEMON + "dump"),
    "annotate": CommandRow(
        "annotate begin NAME", "name an epoch or task of an observed program", _DAEMON + "annotate"
    ),
    "fleet": CommandRow("fleet ACTION LAKE", "query many recordings together", _DAEMON + "fleet"),
}
_TRY = {
    "demo": CommandRow("demo [NAME]", "the screen over a demo program", _SHOWING + "demo"),
    "simgpu": CommandRow("simgpu", "build the simulated GPU, print its folder", _SHOWING + "simgpu"),
}
GROUPS: dict[str, tuple[CommandRow, ...]] = {
    "watch": (*_SCREEN, *_WATCH.values()),
    "record and explain": tuple(_EXPLAIN.values()),
    "files": tuple(_FILES.values()),
    "always on, many machines": tuple(_ALWAYS.values()),
    "try it (on a simulated GPU)": tuple(_TRY.values()),
}
RENAMED = {"snap": "dump"}  # former names, still accepted
TABLE: dict[str, CommandRow] = {**_WATCH, **_EXPLAIN, **_FILES, **_ALWAYS, **_TRY}
_EXAMPLES = """\
examples:
  sudo gputop                       the whole machine
  sudo gputop -- python train.py    start a program and watch it
  sudo gputop explain -- python train.py
  sudo gputop record -o session.msgpack -- python train.py
  gputop session.msgpack            replay it; no root, no GPU
  sudo gputop demo storm            without a GPU
"""


def listing() -> str:
    """Return all commands in groups, then examples, in at most 80 columns."""
    typed = {row: f"gputop {row.typed}".rstrip() for rows in GROUPS.values() for row in rows}
    width = max(map(len, typed.values()))
    groups = (
        f"{title}:\n" + "".join(f"  {typed[row]:<{width}}  {row.summary}\n" for row in rows)
        for title, rows in GROUPS.items()
    )
    return "\n".join((*groups, "gputop COMMAND --help describes a command and its flags.\n", _EXAMPLES))
