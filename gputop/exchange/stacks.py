"""All stacks of a recording with the time of the calls and waits that they made."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.api.reading import Progress, understood
from gputop.api.session import Session, reader_of
from gputop.engine.calls.linesums import Sums, add, sums_of, waits_of
from gputop.engine.calls.stack_table import Line
from gputop.engine.facts import Facts
from gputop.engine.tally import told_sums
from probes.schema import Kind, select
from probes.source import SUMS, Sample

OFF_CPU = "off-CPU"


@dataclass(frozen=True, slots=True)
class StackTime:
    """What one stack did.

    Attributes:
        pid: The process.
        what: The function that was called, or ``off-CPU`` for waits between two calls.
        frames: From the innermost on; none where they are not known.
        count: Calls or waits.
        ns: Their time.
    """

    pid: int
    what: str
    frames: tuple[Line, ...]
    count: int
    ns: int


@dataclass(frozen=True, slots=True)
class StackTimes:
    """The stacks, most time first, and what processes are called."""

    calls: tuple[StackTime, ...]
    waits: tuple[StackTime, ...]
    names: dict[int, str]


def stack_times(session: Session, progress: Progress | None = None) -> StackTimes:
    """Adds up outermost calls whose line was looked for, and waits between calls, by stack.

    Args:
        session: The recording.
        progress: Reports how far the reading is.

    Raises:
        SessionDamagedError: It holds what this gputop does not understand.
    """
    reader = reader_of(session)
    facts = Facts()
    calls: Sums = {}
    waits: Sums = {}
    with understood(session.path):
        items = reader.items()
        for item in progress.through(items, len(reader.marks)) if progress else items:
            if isinstance(item, Sample):
                facts.take(item)
                if item.kind == SUMS:  # of records that were not kept
                    add(calls, told_sums(item.data, "lines"))
                    add(waits, told_sums(item.data, "waits"))
                continue
            add(calls, sums_of(select(item, item["kind"] == Kind.CALL)))
            add(waits, waits_of(item))
        pids = {origin[0] for origin in (*calls, *waits)}
        return StackTimes(
            _rows(calls, facts, of_calls=True),
            _rows(waits, facts, of_calls=False),
            {pid: facts.process_name(pid) for pid in sorted(pids)},
        )


def _rows(sums: Sums, facts: Facts, *, of_calls: bool) -> tuple[StackTime, ...]:
    found: dict[tuple[int, str, tuple[Line, ...]], tuple[int, int]] = {}
    for (pid, second, stack), (count, ns) in sums.items():
        key = pid, facts.api(second)[0] if of_calls else OFF_CPU, facts.stacks.frames(stack)
        before = found.get(key, (0, 0))
        found[key] = before[0] + count, before[1] + ns
    rows = [StackTime(*key, count, ns) for key, (count, ns) in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.ns, row.pid, row.what, row.frames)))
