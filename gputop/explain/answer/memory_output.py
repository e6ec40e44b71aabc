"""Memory as JSON (docs/json.md) and as lines of text."""

from __future__ import annotations

from gputop.documents.memory_schema import MemoryJson
from gputop.engine.lines import Line, line_json
from gputop.explain.answer.memory import Leak, MemoryReport, OutOfMemory
from gputop.format import format_bytes, format_ns

KINDS = {
    "device": "GPU",
    "managed": "managed",
    "pool": "GPU, pool",
    "physical": "GPU, mapped",
    "pinned": "pinned",
    "registered": "registered",
}
BEFORE = "what it took before it was watched"
_SHOWN = 5  # lines, or other processes, that a text names


def memory_json(report: MemoryReport) -> MemoryJson:
    """The key ``memory``."""
    return {
        "processes": [
            {
                "pid": one.pid,
                "ended": one.ended,
                "held_bytes": one.held,
                "peak_bytes": one.peak,
                "pinned_bytes": one.pinned,
                "unknown_frees": one.strangers,
                "from_start": one.whole,
                "lines": [
                    {
                        "kind": line.use,
                        "line": line_json(line.line),
                        "held_bytes": line.held,
                        "pieces": line.pieces,
                        "taken_bytes": line.taken,
                        "takes": line.takes,
                    }
                    for line in one.lines
                ],
            }
            for one in report.processes
        ],
        "leaks": [
            {
                "pid": leak.pid,
                "kind": leak.use,
                "line": line_json(leak.line),
                "held_bytes": leak.held,
                "grown_bytes": leak.grown,
                "over_ns": leak.over_ns,
                "bytes_per_second": leak.rate,
                "bytes_per_step": leak.per_step,
                "full_in_ns": leak.full_in_ns,
                "by_torch": leak.by_torch,
            }
            for leak in report.leaks
        ],
        "out_of_memory": [
            {
                "time_ns": one.time_ns,
                "pid": one.pid,
                "tid": one.tid,
                "api": one.api,
                "line": line_json(one.line),
                "asked_bytes": one.asked,
                "attempts": one.attempts,
                "gave_back_bytes": one.gave_back,
                "met": one.met,
                "free_bytes": one.free,
                "total_bytes": one.total,
                "held_bytes": one.held,
                "pieces": one.pieces,
                "from_start": one.whole,
                "lines": [
                    {"line": line_json(line), "held_bytes": size, "pieces": pieces}
                    for line, size, pieces in one.lines
                ],
                "others": [{"pid": pid, "name": name, "bytes": size} for pid, name, size in one.others],
                "by_torch": one.by_torch,
                "blame": one.blame,
                "why": one.why,
            }
            for one in report.shortages
        ],
    }


def shortage_lines(one: OutOfMemory) -> list[str]:
    """An allocation that failed, with who held what; the first line names it."""
    tries = f", tried {one.attempts} times" if one.attempts > 1 else ""
    met = ", then succeeded" if one.met else ""
    lines = [
        f"out of memory at {one.time_ns / 1e9:.3f} s: process {one.pid} asked for {format_bytes(one.asked)} "
        f"by {one.api}{_at(one.line)}{tries}{met} [{one.blame}]",
        f"  {one.why}",
    ]
    if one.free is not None and one.blame in ("own", "others", "request"):
        by = "as the process asked right after" if one.asked_free else "by NVML, shortly before"
        lines.append(f"  at most {format_bytes(one.free)} would have fitted ({by})")
    if one.gave_back:
        lines.append(f"  it gave {format_bytes(one.gave_back)} back between the attempts")
    if one.held:
        more = "" if one.whole else f", and {BEFORE}"
        lines.append(f"  it held {format_bytes(one.held)} in {one.pieces} allocations{more}:")
        lines += [
            f"    {format_bytes(size)} in {pieces}{_at(line) or ' at lines that are not known'}"
            for line, size, pieces in one.lines[:_SHOWN]
        ]
    elif not one.whole:
        lines.append(f"  it held {BEFORE}")
    if one.by_torch and one.held:
        lines.append(
            "  what PyTorch's allocator holds of it unused is not seen: torch.cuda.memory_summary() tells"
        )
    named = [f"{name or 'process'} ({pid}) {format_bytes(size)}" for pid, name, size in one.others[:_SHOWN]]
    if named:
        lines.append(f"  others on the GPU: {', '.join(named)}")
    return lines


_BY_TORCH = "; PyTorch's allocator grows there; which tensors keep it alive is not visible from outside"


def leak_line(leak: Leak) -> str:
    """What grows without end, how fast, and when the GPU is full."""
    what = KINDS[leak.use] if leak.use else "GPU"
    where = _at(leak.line)
    where = where if leak.use else f", no line alone{', most' + where if where else ''}"
    step = f", {format_bytes(leak.per_step)} a step" if leak.per_step else ""
    full = (
        f"; the GPU is full in {format_ns(leak.full_in_ns)} at this rate"
        if leak.full_in_ns is not None
        else ""
    )
    return (
        f"process {leak.pid} holds more and more {what} memory{where}: {format_bytes(leak.held)}, "
        f"{format_bytes(leak.rate)} a second{step}{full}"
        f"{_BY_TORCH if leak.by_torch else ''}"
    )


def _at(line: Line | None) -> str:
    return f" at {line.text()}" if line is not None else ""
