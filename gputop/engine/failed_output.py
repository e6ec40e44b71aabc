"""Calls that failed, as JSON (docs/json.md) and as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.documents.shared_schema import FailureJson
from gputop.engine.failed_calls import Failure, Launch
from gputop.engine.kernels import folded
from gputop.engine.lines import line_json
from gputop.format import format_count


def failure_json(failure: Failure) -> FailureJson:
    """One entry of ``failures``."""
    return {
        "pid": failure.pid,
        "tid": failure.tid,
        "api": failure.api,
        "layer": failure.layer,
        "code": failure.error.code,
        "error": failure.error.name,
        "text": failure.error.text,
        "sticky": failure.error.sticky,
        "count": failure.count,
        "first_ns": failure.first_ns,
        "last_ns": failure.last_ns,
        "line": line_json(failure.line),
        "launches": [
            {
                "time_ns": launch.time_ns,
                "api": launch.api,
                "tid": launch.tid,
                "kernel": launch.kernel,
                "name": launch.name,
                "stream": launch.stream,
                "line": line_json(launch.line),
            }
            for launch in failure.launches
        ],
    }


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """A line each, and below an error that ends everything what the GPU was given before it; not escaped."""
    lines = []
    for failure in failures:
        lines.append(failure_line(failure))
        if failure.error.sticky and failure.launches:
            lines.append("  every later call of the process fails; not known to have ended before it:")
            lines += [f"    {launch_line(launch, failure.first_ns)}" for launch in failure.launches]
    return lines


def failure_line(failure: Failure) -> str:
    """``cudaMalloc: cudaErrorMemoryAllocation (2), out of memory: once, at 1.234 s at a.py:7 in f()``."""
    place = f" at {failure.line.text()}" if failure.line is not None else ""
    times = f"{format_count(failure.count)} times, first" if failure.count > 1 else "once,"
    return f"{failure.text()}: {times} at {failure.first_ns / 1e9:.3f} s{place}"


def launch_line(launch: Launch, error_ns: int) -> str:
    """``cudaLaunchKernel of 0x4f0, 1.200 ms before, stream 0x7, at a.py:7 in f()``."""
    place = f", at {launch.line.text()}" if launch.line is not None else ""
    ago = (error_ns - launch.time_ns) / 1e6
    what = folded(launch.name) if launch.name else f"{launch.kernel:#x}"
    return f"{launch.api} of {what}, {ago:.3f} ms before, stream {launch.stream:#x}{place}"
