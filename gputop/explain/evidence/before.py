"""What is known of the time before a file that was cut from a longer one, as samples and back.

These calls are no records of the file: who counts calls does not see them, only the explanation does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from probes.schema import ALIASED, COPY_SHIFT, RECORD, CallFlag, ExitFlag, Kind, Records, empty, join
from probes.source import CARRIED, Sample

if TYPE_CHECKING:
    from gputop.explain.evidence.evidence import Columns, Table
    from gputop.explain.evidence.tick import Tick

_ROWS: Final = 10_000  # of one sample, whose size is bounded
_MOST: Final = 1 << 16  # more in one sample was made to fill memory


def sample_before(tick: Tick, lives: Sequence[Table], complete: Iterable[int], time_ns: int) -> list[Sample]:
    """The samples that say what is carried over.

    Args:
        tick: Calls, inner calls and stays off the CPU, as retention.py chose them.
        lives: Births and ends of threads that live.
        complete: Processes all of whose CUDA calls were seen.
        time_ns: The moment before which all of it lies.
    """
    parts = [_calls(one, 0) for one in tick.calls] + [_calls(one, CallFlag.NESTED) for one in tick.inner]
    parts += [_slices(one) for one in tick.slices] + [_lives(one) for one in lives]
    records = join([empty(0), *parts])
    records = records[np.argsort(records["t_end"], kind="stable")]
    pids = list(complete)
    return [
        sample_of(records[row : row + _ROWS], pids, time_ns) for row in range(0, max(len(records), 1), _ROWS)
    ]


def sample_of(records: Records, complete: Iterable[int], time_ns: int) -> Sample:
    """One such sample; arguments as ``records_before`` returns them."""
    pids = sorted(int(pid) for pid in complete)
    return Sample(CARRIED, time_ns, {"complete": pids, "columns": packed_columns(records)})


def records_before(data: Mapping[str, Any]) -> tuple[Records, frozenset[int]]:
    """(the calls and lives of such a sample, processes all of whose calls were seen).

    Raises:
        ValueError: It is damaged.
    """
    columns = data["columns"]
    count = len(columns["kind"])
    if count > _MOST:
        raise ValueError(f"{count} calls from before the recording")
    records = empty(count)
    for name in RECORD.names or ():
        if name in columns:
            records[name] = np.frombuffer(columns[name], RECORD[name])
    return records, frozenset(int(pid) for pid in data.get("complete", ()))


def packed_columns(records: Records) -> dict[str, bytes]:
    """Records as such a sample holds them."""
    return {name: np.ascontiguousarray(records[name]).tobytes() for name in RECORD.names or ()}


def _calls(columns: Columns, flags: int) -> Records:
    records = empty(len(columns))
    records["kind"] = Kind.CALL
    records["t_end"], records["duration"] = columns["end"], columns["end"] - columns["begin"]
    for name in ("tid", "pid", "op", "ret", "bytes", "stream", "aux", "stack"):
        records[name] = columns[name]
    records["run_delay"] = columns["shape"]  # without COUNTERS it is that
    abandoned: npt.NDArray[np.uint16] = columns["abandoned"].astype(np.uint16) * CallFlag.ABANDONED
    records["flags"] = columns["direction"].astype(np.uint16) << COPY_SHIFT | abandoned | flags
    return records


def _slices(columns: Columns) -> Records:
    records = empty(len(columns))
    rows = records.view(ALIASED)
    rows["kind"], rows["t_end"] = Kind.OFFCPU, columns["end"]
    rows["duration"], rows["runnable"] = columns["end"] - columns["begin"], columns["end"] - columns["queued"]
    for name in ("tid", "pid", "waker_tid", "waker_pid", "cpu", "queue_cpu", "flags", "faults", "stack"):
        rows[name] = columns[name]
    rows["op"], rows["argument"] = columns["syscall"], columns["descriptor"]
    return records


def _lives(table: Table) -> Records:
    records = empty(len(table))
    rows = records.view(ALIASED)
    for name in ("tid", "pid", "kind"):
        rows[name] = table[name]
    rows["t_end"], rows["next_tid"] = table["at"], table["maker"]
    rows["flags"] = table["dead"].astype(np.uint16) * ExitFlag.GROUP_DEAD
    return records
