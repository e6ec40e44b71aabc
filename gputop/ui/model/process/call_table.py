"""The tables of a process's calls and threads."""

from __future__ import annotations

from gputop.engine.frame import CallRow, Frame, ProcessRow, Share, ThreadRow
from gputop.format import (
    escape_text,
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    histogram_bars,
    used_range,
)
from gputop.ui.model.listing.process_table import short_api
from gputop.ui.model.look import Glyphs, Span
from gputop.ui.model.table import Column, Context, Table

UNWATCHED = (
    "No CUDA call of this process was seen: it has made none since gputop began, or --pid leaves it out.",
    "NVML lists it as a user of the GPU: its GPU memory and utilisation, CPU time and RSS are known.",
)
NO_CALLS = ("No CUDA call ended in the last window.",)
NO_CUDA = ("This process has not used CUDA so far: it made no call and holds no known GPU memory.",)
NO_CALLS_KNOWN = ("Its CUDA calls are not known without eBPF.", "[!] shows the reason.")
LEAST_SHARE = 0.005  # of a CPU's time, from which on a preempting thread is named
FEW = 100  # calls, below which a p99 is one of the slowest
_LAYER_WIDTH = 7  # columns for a word in place of a letter
LAYERS = {"runtime": "R", "driver": "D", "nccl": "N"}


def _api(row: CallRow, context: Context, width: int) -> Span:
    return escape_text(short_api(row.api, width)), ("dim" if row.nested else "")


def _layer(row: CallRow, context: Context, width: int) -> Span:
    # the time of a nested call is part of another row
    word = "nested" if row.nested else escape_text(row.layer)
    letter = "n" if row.nested else LAYERS.get(row.layer, "?")
    return (word if width >= _LAYER_WIDTH else letter), "dim"


def _percentile(ns: int, row: CallRow, few: bool) -> Span:
    if not row.count:
        return "-", "unknown"
    return ("~" + format_ns(ns), "unsure") if few and row.count < FEW else (format_ns(ns), "")


def _errors(row: CallRow, context: Context, width: int) -> Span:
    return (format_count(row.errors), "alert") if row.errors else (context.glyphs.dot, "dim")


def _pending(row: CallRow, context: Context, width: int) -> Span:
    if not row.in_progress:
        return "", ""
    many = f"{row.in_progress}x" if row.in_progress > 1 else ""
    return f"{context.glyphs.pending}{many}{format_ns(row.in_progress_ns)}", "pending"


def _histogram(row: CallRow, context: Context, width: int) -> Span:
    return histogram_bars(row.histogram, context.used_buckets, width, ascii_only=context.glyphs.ascii), "busy"


CALL_COLUMNS: tuple[Column[CallRow], ...] = (
    Column("api", "CALL", 14, _api, lambda r: r.api.lower(), right=False, keep=100, grow=34,
           descending=False),
    Column("layer", "LAYER", 1, _layer, lambda r: r.layer, right=False, keep=40, grow=_LAYER_WIDTH,
           whole=True, descending=False),
    Column("count", "CALLS/s", 7, lambda r, c, w: (format_count(r.count / c.window_s), ""), lambda r: r.count,
           keep=90),
    Column("time", "TIME/s", 6, lambda r, c, w: (format_ns(r.sum_ns / c.window_s), ""), lambda r: r.sum_ns,
           keep=20),
    Column("p50", "p50", 6, lambda r, c, w: _percentile(r.p50_ns, r, False), lambda r: r.p50_ns, keep=80),
    Column("p95", "p95", 7, lambda r, c, w: _percentile(r.p95_ns, r, True), lambda r: r.p95_ns, keep=60),
    Column("p99", "p99", 7, lambda r, c, w: _percentile(r.p99_ns, r, True), lambda r: r.p99_ns, keep=85),
    Column("max", "MAX", 6, lambda r, c, w: _percentile(r.max_ns, r, False), lambda r: r.max_ns, keep=65),
    Column("errors", "ERR", 4, _errors, lambda r: r.errors, keep=50),
    Column("pending", "IN FLIGHT", 9, _pending, lambda r: r.in_progress_ns, keep=70, grow=10),
    Column("bytes", "BYTES", 6, lambda r, c, w: (format_bytes(r.bytes) if r.bytes else c.glyphs.dot, "dim"),
           lambda r: r.bytes, keep=5),
    Column("histogram", "HISTOGRAM", 9, _histogram, lambda r: r.sum_ns, right=False, keep=75, grow=40),
)  # fmt: skip


def call_table() -> Table[CallRow]:
    """Return an empty table of calls, most time first."""
    return Table(
        CALL_COLUMNS,
        lambda row: (row.layer, row.api, row.nested),
        "time",
        lambda row: f"{row.api} {row.layer}",
    )


def call_context(frame: Frame, process: ProcessRow | None, glyphs: Glyphs) -> Context:
    """Return the context of the calls, whose histograms share one range of buckets."""
    used = used_range([call.histogram for call in process.calls]) if process else (0, 0)
    window_s = max(frame.window_ns, 1) / 1e9
    return Context(glyphs, window_s, frame.time_ns, used_buckets=used, traced=frame.calls_observed)


def histogram_scale(context: Context) -> str:
    """Return the range of the histograms: ``histogram 2.0us to 67.1ms``, "" without calls."""
    first, end = context.used_buckets
    return f"histogram {format_ns(2**first)} to {format_ns(2**end)}" if end > first else ""


UNNAMED = "unnamed"  # threads that ended before their name could be read


def shares_text(shares: tuple[Share, ...], glyphs: Glyphs, most: int = 4) -> str:
    """Return the threads that ran, by name: ``pt_data_worker x4 61% · python 22%``.

    Args:
        shares: The threads, in any order.
        glyphs: The screen's glyphs.
        most: The number of names; the rest is summed.
    """
    groups: dict[str, list[Share]] = {}
    for share in shares:
        if share.fraction >= LEAST_SHARE:
            name = share.name if share.name != str(share.tid) else UNNAMED
            groups.setdefault(name, []).append(share)
    sums = {name: sum(share.fraction for share in group) for name, group in groups.items()}
    ordered = sorted(sums.items(), key=lambda group: -group[1])
    parts = []
    for name, fraction in ordered[:most]:
        threads = sum(share.threads for share in groups[name])
        label = glyphs.shown(name) + (f" x{threads}" if threads > 1 else "")
        parts.append(f"{label} {format_percent(fraction * 100)}%")
    rest = sum(fraction for _, fraction in ordered[most:])
    if rest > 0:
        parts.append(f"{len(ordered) - most} more {format_percent(rest * 100)}%")
    return f" {glyphs.dot} ".join(parts)


STATES = {"running": "R run", "runnable": "Q runq", "blocked": "B block", "exited": "X exit"}


def _state(row: ThreadRow, context: Context, width: int) -> Span:
    text = STATES.get(row.state, escape_text(row.state))
    token = {"runnable": "host", "exited": "exited"}.get(row.state, "dim")
    return (text if width >= 7 else text[:1]), token


def _share_of_window(ns: int, context: Context) -> str:
    return format_percent(ns / (context.window_s * 1e7))


def _cuda(row: ThreadRow, context: Context, width: int) -> Span:
    if not context.traced:
        return "-", "unknown"
    return ("C", "busy") if row.cuda else (context.glyphs.dot, "dim")


def _preempted(row: ThreadRow, context: Context, width: int) -> Span:
    if not context.traced:
        return "-", "unknown"
    return shares_text(row.preempted_by, context.glyphs, 3), ""


def _runnable(row: ThreadRow, context: Context, width: int) -> Span:
    share = row.runnable_ns / (context.window_s * 1e9)
    return _share_of_window(row.runnable_ns, context), "host" if share >= 0.2 else ""


THREAD_COLUMNS: tuple[Column[ThreadRow], ...] = (
    Column("tid", "TID", 7, lambda r, c, w: (str(r.tid), ""), lambda r: r.tid, keep=100, descending=False),
    Column("name", "THREAD", 9, lambda r, c, w: (c.glyphs.shown(r.name), ""),
           lambda r: r.name.lower(), right=False, keep=95, grow=16, descending=False),
    Column("cuda", "C", 1, _cuda, lambda r: r.cuda, right=False, keep=30),
    Column("state", "ST", 2, _state, lambda r: r.state, right=False, keep=60, grow=7, whole=True,
           descending=False),
    Column("voluntary", "VOL/s", 5, lambda r, c, w: (format_count(r.voluntary_switches / c.window_s), ""),
           lambda r: r.voluntary_switches, keep=50),
    Column("involuntary", "PREEMPT/s", 9,
           lambda r, c, w: (format_count(r.involuntary_switches / c.window_s), ""),
           lambda r: r.involuntary_switches, keep=90),
    Column("on_cpu", "CPU%", 5, lambda r, c, w: (_share_of_window(r.on_cpu_ns, c), ""), lambda r: r.on_cpu_ns,
           keep=70),
    Column("runnable", "RUNQ%", 5, _runnable, lambda r: r.runnable_ns, keep=85),
    Column("blocked", "BLK%", 5, lambda r, c, w: (_share_of_window(r.blocked_ns, c), ""),
           lambda r: r.blocked_ns, keep=65),
    Column("preempted", "PREEMPTED BY", 14, _preempted, lambda r: r.runnable_ns, right=False, keep=55,
           grow=60),
)  # fmt: skip


def faults_text(row: ProcessRow, frame: Frame) -> str:
    """Return a process's page faults: ``2.1k minor, 3 major faults/s``, or ""."""
    if row.faults is None or not row.faults.minor + row.faults.major:
        return ""
    window_s = max(frame.window_ns, 1) / 1e9
    minor, major = row.faults.minor / window_s, row.faults.major / window_s
    return f"{format_count(minor)} minor, {format_count(major)} major faults/s"


def thread_table() -> Table[ThreadRow]:
    """Return an empty table of threads, the most preempted first."""
    return Table(THREAD_COLUMNS, lambda row: row.tid, "involuntary", lambda row: f"{row.tid} {row.name}")


def thread_token(row: ThreadRow) -> str:
    return "exited" if row.state == "exited" else ""
