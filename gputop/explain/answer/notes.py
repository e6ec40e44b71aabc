"""What a report notes of its own figures: what is lost, what is estimated and how well, what nobody says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.engine.facts import Facts
from gputop.explain.answer.report import Account
from gputop.format import format_ns


def about_figures(accounts: Sequence[Account], lost_events: int, unknown_ns: int) -> tuple[str, ...]:
    """The notes.

    Args:
        accounts: Of the GPUs.
        lost_events: Records that are missing.
        unknown_ns: Gaps that are left out because of it.
    """
    lost = (
        (
            f"{lost_events} events are lost; {format_ns(unknown_ns) if unknown_ns else '0'} of gaps around "
            "them are left out",
        )
        if lost_events
        else ()
    )
    return (*lost, *_about_estimates(accounts))


def about_ends(facts: Facts, start_ns: int) -> Iterator[str]:
    """Processes that the kernel ended for lack of memory.

    Args:
        facts: Who is who.
        start_ns: Of the recording.
    """
    for pid, process in sorted(facts.processes.items()):
        if (moment := process.get("oom_ns")) is not None:
            yield (
                f"the kernel killed process {pid} ({facts.process_name(pid)}) "
                f"{format_ns(int(moment) - start_ns)} after the start of the recording: out of memory"
            )


_SOURCES = {
    "nvml": "NVML's samples",
    "learned": "kernel times learned from the program's waits",
    "both": "NVML's samples and kernel times learned from the program's waits, which agree",
}


def _about_estimates(accounts: Sequence[Account]) -> Iterator[str]:
    """Who says what no call proves, and what nobody says."""
    for one in accounts:
        if one.source is not None and one.estimated_ns > 0.02 * one.span_ns:
            yield (
                f"{format_ns(one.estimated_ns)} of idle time is estimated, give or take "
                f"{format_ns(one.error_ns)}, from {_SOURCES[one.source]}"
            )
        if not one.agrees:
            yield (
                "NVML's samples and the kernel times learned from the program's waits disagree about the "
                "idle time: what rests on it is a hint"
            )
        if one.unknown_ns > 0.2 * one.span_ns:
            yield (
                f"for {format_ns(one.unknown_ns)} it is unknown whether the GPU had work: no call waited "
                "for it there, and NVML says too little"
            )
