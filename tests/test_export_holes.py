"""Perfetto draws nothing over time whose records a recording did not keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.recording.tick_sums import Reducer
from probes.source import HOLE, MARK, Item, Sample
from tests.split_recording import read, write
from tests.trace_processor import loaded
from tests.typed import typed

ROOT = Path(__file__).resolve().parents[1]
States = dict[tuple[int, str], int]


def ticks_of(told: list[Item]) -> list[list[Item]]:
    """The items tick by tick, each with its mark."""
    ticks: list[list[Item]] = [[]]
    for item in told:
        ticks[-1].append(item)
        if isinstance(item, Sample) and item.kind == MARK:
            ticks.append([])
    return ticks


def states_of(recording: Path, folder: Path, low: int, high: int) -> tuple[States, States, States]:
    """(thread, state) -> ns before, within and after a stretch, as the trace processor has them."""
    folder.mkdir()
    trace = folder / "trace"
    assert typed("export", str(recording), "--to", "perfetto", "-o", str(trace)) == 0
    with loaded(trace, folder) as query:
        assert query("select name, value from stats where severity != 'info' and value > 0") == []
        rows = query(
            "select tid, replace(state, 'D', 'S') state, ts, dur from thread_state join thread using (utid)"
            " where dur > 0 and state is not null"
        )
    found: tuple[States, States, States] = ({}, {}, {})
    for row in rows:
        key, begin, end = (row["tid"], row["state"]), row["ts"], row["ts"] + row["dur"]
        for sums, first, last in zip(found, (0, low, high), (low, high, end), strict=True):
            inside = min(end, last) - max(begin, first)
            if inside > 0:
                sums[key] = sums.get(key, 0) + inside
    return found


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sums", "hole"])
@pytest.mark.mainly("sums")
def test_no_thread_is_drawn_as_running_over_time_that_was_not_kept(kind: str, tmp_path: Path) -> None:
    recording = ROOT / "recordings" / "dataloader-workers.msgpack"
    header, told = read(recording)
    ticks = ticks_of(told)
    first, last = len(ticks) // 3, 2 * len(ticks) // 3
    low, high = ticks[first - 1][-1], ticks[last - 1][-1]
    assert isinstance(low, Sample)
    assert isinstance(high, Sample)
    reducer, less = Reducer(int(header["start_ns"])), list[Item]()
    for number, tick in enumerate(ticks):
        if not first <= number < last:
            less += reducer.whole(tick)
        elif kind == "sums":
            less += reducer.reduced(tick)
        else:
            less += [Sample(HOLE, low.time_ns, {"why": "test"}), *(i for i in tick if isinstance(i, Sample))]
    path = write(tmp_path / "less.msgpack", header, less)
    before, inside, after = states_of(path, tmp_path / "less", low.time_ns, high.time_ns)
    all_before, all_inside, all_after = states_of(recording, tmp_path / "all", low.time_ns, high.time_ns)
    assert sum(ns for (_tid, state), ns in all_inside.items() if state == "Running") > 100_000_000
    assert not [key for key in inside if key[1] == "Running"]
    # a stay off the CPU that goes on when records come again is known from its begin
    assert all(ns <= all_inside[key] for key, ns in inside.items() if key[1] in "RS")
    # a record may be read after the mark before which it ended, and is then among those that are missing
    assert before == {key: pytest.approx(ns, rel=0.01) for key, ns in all_before.items()}
    known = {key: ns for key, ns in after.items() if key[1] != "X"}
    assert known == {key: pytest.approx(ns, rel=0.01) for key, ns in all_after.items()}
