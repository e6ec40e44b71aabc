"""The process table: a row per process, exited ones dimmed, those in a storm marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from gputop.engine.frame import Frame, ProcessRow
from gputop.engine.rows import is_storm
from gputop.format import (
    NS_PER_S,
    escape_text,
    format_bytes,
    format_count,
    format_duration,
    format_ns,
    format_percent,
    width_of,
)
from gputop.ui.model.listing.memory_shares import MemorySizes, share_columns
from gputop.ui.model.listing.process_history import ProcessHistory, spark_column
from gputop.ui.model.look import Glyphs, Span
from gputop.ui.model.table import Column, Context, Table


def belongs(row: ProcessRow, key: str) -> str:
    """Return a property of the process's container, pod, job or rank as text, or ""."""
    return next((str(value) for name, value in row.belongs if name == key), "")


def container_id(row: ProcessRow) -> str:
    """Return the container without its kind: in Kubernetes its name in the pod, else its id or name."""
    return belongs(row, "pod_container") or row.container.rpartition(" ")[2]


def job(row: ProcessRow) -> str:
    """Return the job and its step: ``4711.0``."""
    return ".".join(filter(None, (belongs(row, "job_id"), belongs(row, "job_step"))))


def rank(row: ProcessRow) -> str:
    """Return the rank and the number of ranks: ``3/8``."""
    number, size = belongs(row, "rank"), belongs(row, "world_size")
    return f"{number}/{size}" if number and size else number


WAITING = (
    "Waiting for a process that uses CUDA.",
    "gputop shows each process from its first CUDA call on. Start one in another terminal, or let "
    "gputop start it:  gputop -- python train.py",
)
WAITING_UNTRACED = (
    "Waiting for a process that uses CUDA.",
    "Without eBPF gputop shows the processes that NVML lists, and yours that have mapped a CUDA library. "
    "For any other:  gputop --pid 1234",
)


_INTERPRETERS = ("python", "pypy")
_NAMED = ("-m",)  # before what Python runs, as good a name as a script
_ROOMY = 40  # columns of a command from which on it begins with its interpreter, where it fits
_SWITCHES = re.compile(r"(-[bBdEiIOPqRsSuvx]+ )*")  # of Python, without a value
_OUTPUT_LINES = 12  # of a command that ended without a CUDA call


def context_of(frame: Frame, glyphs: Glyphs) -> Context:
    """Return the context of the cells of the process table."""
    storms = {storm.pid: f"{glyphs.storm} storm" for storm in frame.storms}
    return Context(glyphs, max(frame.window_ns, 1) / 1e9, frame.time_ns, storms, traced=frame.calls_observed)


def waiting(frame: Frame, outcome: str = "", output: Sequence[str] = (), hidden: int = 0) -> tuple[str, ...]:
    """Return why there is no process.

    Args:
        frame: The frame.
        outcome: How the command ended, or "".
        output: The command's output.
        hidden: The number of processes hidden by flags.
    """
    if hidden:
        return (f"No process matches ({hidden} hidden): leave out --gpu, --user, --name or --container.",)
    if outcome:
        return (f"{outcome} without a CUDA call.", *(escape_text(line) for line in output[-_OUTPUT_LINES:]))
    return WAITING if frame.calls_observed else WAITING_UNTRACED


def unselected(frame: Frame, what: str, outcome: str = "") -> tuple[str, ...]:
    """Return why a detail table is empty if no process is selected."""
    if outcome and not frame.processes:
        return ("No CUDA call was made.",)
    if not frame.processes:
        return waiting(frame)[:1]
    return (f"No process is listed, so there are no {what}.",)


def _name(row: ProcessRow, context: Context, width: int) -> Span:
    name = context.leads.get(row.pid, "") + context.glyphs.shown(row.name)
    inner = f" ({row.namespace_pid})" if row.namespace_pid is not None else ""
    return (name + inner if len(name + inner) <= width else name), ""


def _gpus(row: ProcessRow, context: Context, width: int) -> Span:
    if row.gpus is None:
        return "?", "unknown"
    if not row.gpus:
        return context.glyphs.dot, "unknown"
    text = ",".join(str(index) for index in row.gpus)
    if len(text) > width:  # a range rather than a cut list
        text = f"{row.gpus[0]}-{row.gpus[-1]}"
    return text, ""


def _gpu_order(row: ProcessRow) -> str:
    return ",".join(f"{index:04d}" for index in row.gpus or ())


def _of_top(text: Callable[[ProcessRow, int], str]) -> Callable[[ProcessRow, Context, int], Span]:
    """Return a cell about the call with most time, if any."""
    return lambda row, _context, width: (text(row, width), "") if row.top_api else ("-", "unknown")


def short_api(api: str, width: int) -> str:
    """Return the function, without its prefix if it does not fit: ``MemcpyAsync``."""
    if len(api) <= width:
        return api
    for prefix in ("cuda", "cu", "nccl"):
        if api.startswith(prefix) and api[len(prefix) :][:1].isupper():
            api = api[len(prefix) :]
            break
    return api if len(api) <= width else api.replace("Synchronize", "Sync")


def _state(row: ProcessRow, context: Context, width: int) -> Span:
    if row.exited_ns is not None:
        ago = max(context.time_ns - row.exited_ns, 0)
        seconds = f" {ago // NS_PER_S}s" if ago < 100 * NS_PER_S else f" {format_ns(ago)}"
        word = ("exited" if width >= 8 else "exit") + (seconds if width >= 13 else "")
        return f"{context.glyphs.exited} {word}", "exited"
    storm = context.storms.get(row.pid, "")
    return storm, "host" if storm else ""


def _calls(row: ProcessRow, context: Context, width: int) -> Span:
    known = context.traced and row.watched
    return (format_count(row.calls_per_second), "") if known else ("-", "unknown")


def _scheduled(
    key: str,
    title: str,
    figure: Callable[[ProcessRow], float | None],
    text: Callable[[float], str],
    *,
    keep: int,
    storm: bool = False,
) -> Column[ProcessRow]:
    """Return a column of scheduling figures, which imported traces lack."""

    def cell(row: ProcessRow, context: Context, width: int) -> Span:
        value = figure(row)
        if value is None:
            return "-", "unknown"
        return text(value), "host" if storm and row.pid in context.storms else ""

    return Column(key, title, len(title), cell, lambda row: figure(row) or 0.0, keep=keep)


def _command(row: ProcessRow, context: Context, width: int) -> Span:
    """Return the command line without the program's folder; the name if it is unknown (--private).

    Without room the script's folder goes, then the interpreter with its switches: ``train.py --epochs 90``.
    """
    program, space, rest = row.command.partition(" ")
    name = program.rpartition("/")[2]
    text = name + space + rest if program else f"[{row.name}]" if row.name else ""
    if width_of(text) > width or width < _ROOMY:  # alike in all rows of a narrow column
        switches = _SWITCHES.match(rest) if name.startswith(_INTERPRETERS) else None
        first = switches.group() if switches is not None else ""
        script, blank, words = rest[len(first) :].partition(" ")
        option = script.startswith("-")
        script = script if option else script.rpartition("/")[2]
        text = name + space + first + script + blank + words
        named = script in _NAMED or (script and not option)
        if named and name.startswith(_INTERPRETERS) and (width_of(text) > width or width < _ROOMY):
            text = script + blank + words
    return context.glyphs.shown(text), "dim"


def format_run(ns: int | None) -> str:
    """Return a run time in at most seven columns: ``02:11``, ``1:02:11``, ``12h34m``, ``3d04h``."""
    if ns is None:
        return "-"
    hours = ns // NS_PER_S // 3_600
    if hours < 10:
        return format_duration(ns)
    if hours < 100:
        return f"{hours}h{ns // NS_PER_S // 60 % 60:02d}m"
    return f"{hours // 24}d{hours % 24:02d}h" if hours < 24_000 else f"{hours // 24}d"


def _named(
    key: str,
    title: str,
    width: int,
    text: Callable[[ProcessRow], str],
    *,
    keep: int,
    grow: int,
    sort: Callable[[ProcessRow], float | str] | None = None,
) -> Column[ProcessRow]:
    """Return a column of a rare property, shown while any process has it."""

    def cell(row: ProcessRow, context: Context, _width: int) -> Span:
        shown = text(row)
        return (context.glyphs.shown(shown), "") if shown else ("-", "unknown")

    return Column(
        key,
        title,
        width,
        cell,
        sort or text,
        right=False,
        keep=keep,
        grow=grow,
        descending=False,
        has=lambda row: bool(text(row)),
    )


def _figure(
    key: str,
    title: str,
    width: int,
    figure: Callable[[ProcessRow], float | None],
    text: Callable[[Any], str],
    *,
    keep: int,
) -> Column[ProcessRow]:
    """Return a column of a figure that may be unknown."""

    def cell(row: ProcessRow, _context: Context, _width: int) -> Span:
        value = figure(row)
        return ("-", "unknown") if value is None else (text(value), "")

    return Column(
        key, title, width, cell, lambda row: -1 if (value := figure(row)) is None else value, keep=keep
    )


COLUMNS: tuple[Column[ProcessRow], ...] = (
    Column("pid", "PID", 7, lambda r, c, w: (str(r.pid), ""), lambda r: r.pid, keep=100, descending=False),
    Column("name", "NAME", 9, _name, lambda r: r.name.lower(), right=False, keep=99, grow=24,
           descending=False),
    Column("user", "USER", 7, lambda r, c, w: (escape_text(r.user) or "-", "dim"), lambda r: r.user,
           right=False, keep=54, grow=12, descending=False),
    Column("gpu", "GPU", 3, _gpus, _gpu_order, right=False, keep=67, grow=5,
           descending=False),
    _figure("sm", "SM%", 3, lambda r: r.sm_percent, format_percent, keep=66),
    _figure("watts", "WATTS", 5, lambda r: r.watts, lambda watts: f"{watts:.0f}", keep=44),
    _figure("bandwidth", "GMBW%", 5, lambda r: r.memory_percent, format_percent, keep=51),
    _figure("memory", "GPU MEM", 7, lambda r: r.gpu_memory_bytes, format_bytes, keep=58),
    Column("calls", "CALLS/s", 7, _calls, lambda r: r.calls_per_second, keep=80),
    Column("api", "TOP CALL", 12, _of_top(lambda r, w: escape_text(short_api(r.top_api, w))),
           lambda r: r.top_api.lower(), right=False, keep=70, grow=28, shortens=True, descending=False),
    Column("time", "TIME/s", 6, _of_top(lambda r, w: format_ns(r.top_api_ns_per_second)),
           lambda r: r.top_api_ns_per_second, keep=20),
    Column("p99", "p99", 6, _of_top(lambda r, w: format_ns(r.top_api_p99_ns)), lambda r: r.top_api_p99_ns,
           keep=65),
    _scheduled("involuntary", "PREEMPT/s", lambda r: r.involuntary_per_second, format_count, keep=96,
               storm=True),
    _scheduled("voluntary", "VOL/s", lambda r: r.voluntary_per_second, format_count, keep=30),
    _scheduled("runnable", "RUNQ%", lambda r: r.runnable_percent, format_percent, keep=94, storm=True),
    _scheduled("blocked", "BLK%", lambda r: r.blocked_percent, format_percent, keep=46),
    _scheduled("cpu", "CPU%", lambda r: r.on_cpu_percent, format_percent, keep=57),
    _figure("rss", "RSS", 5, lambda r: r.rss_bytes, format_bytes, keep=56),
    _figure("run", "RUNTIME", 7, lambda r: r.run_ns, format_run, keep=53),
    _named("rank", "RANK", 4, rank, keep=50, grow=9, sort=lambda r: f"{int(belongs(r, 'rank') or 0):09d}"),
    _named("job", "JOB", 6, job, keep=48, grow=20),
    _named("pod", "POD", 10, lambda r: belongs(r, "pod"), keep=49, grow=30),
    _named("container", "CONTAINER", 9, container_id, keep=47, grow=14),
    Column("state", "STATE", 7, _state, lambda r: 0, right=False, keep=98, grow=13, whole=True,
           has=lambda r: r.exited_ns is not None or is_storm(r)),
    Column("command", "COMMAND", 13, _command, lambda r: r.command, right=False, keep=52, grow=90,
           descending=False, instead="name"),
)  # fmt: skip


def process_table(
    history: ProcessHistory | None = None, sizes: MemorySizes | None = None
) -> Table[ProcessRow]:
    """Return an empty process table, busiest first."""
    more = {"calls": spark_column(history or ProcessHistory()), **share_columns(sizes or MemorySizes())}
    columns = [one for column in COLUMNS for one in (column, more.get(column.key)) if one is not None]
    return Table(columns, lambda row: row.pid, "calls", ended=lambda row: row.exited_ns is not None)


def row_token(row: ProcessRow) -> str:
    return "exited" if row.exited_ns is not None else "" if row.watched else "dim"
