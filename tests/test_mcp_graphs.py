"""``graph_lifecycle`` and ``graph_frequency``: what a recording holds of CUDA graphs, and what not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gputop.errors import CommandError
from gputop.query.catalogue import Catalogue
from gputop.query.graph_tools import graph_frequency, graph_lifecycle
from probes.schema import Records
from tests import items as made
from tests.asking import RECORDINGS
from tests.items import MS, SECOND, START
from tests.random_recording import ticked
from tests.split_recording import write

BEGIN, END = "cudaStreamBeginCapture", "cudaStreamEndCapture"
MAKE, LAUNCH, UPDATE = "cudaGraphInstantiate", "cudaGraphLaunch", "cudaGraphExecUpdate"
STREAM, GRAPH, FIRST, SECOND_ONE = 0x5, 0xA0, 0xE1, 0xE2


def call(at_ms: float, op: str, took_ms: float = 0.1, **more: int) -> Records:
    """One that begins then, on the usual stream."""
    took = round(took_ms * MS)
    return made.call(START + round(at_ms * MS) + took, took, op, **{"stream": STREAM, **more})


def of(folder: Path, calls: Sequence[Records], **header: Any) -> Catalogue:
    """The only session of a catalogue."""
    known = [made.apis(), made.process(10, name="trainer")]
    rows = sorted(calls, key=lambda one: int(one["t_end"][0]))
    return Catalogue(
        [str(write(folder / "one.msgpack", {**made.HEADER, **header}, [*known, *ticked(rows, START)]))]
    )


def captured(at_ms: float, calls: int, **more: int) -> list[Records]:
    """A capture of 10 ms with so many launches into its stream."""
    inside = [call(at_ms + 1 + number / 10, "cudaLaunchKernel", 0.05, **more) for number in range(calls)]
    return [call(at_ms, BEGIN, **more), *inside, call(at_ms + 10, END, aux=0x7FFF, **more)]


def replayed(at_ms: float, count: int, every_ms: float, executable: int, **more: int) -> list[Records]:
    """Launches of one executable."""
    return [call(at_ms + number * every_ms, LAUNCH, aux=executable, **more) for number in range(count)]


def lifecycle(catalogue: Catalogue, pid: int = 10, **more: Any) -> Any:
    """The reply, read."""
    return json.loads(graph_lifecycle(catalogue, pid, **more))


def frequency(catalogue: Catalogue, pid: int = 10, **more: Any) -> Any:
    """The reply, read."""
    return json.loads(graph_frequency(catalogue, pid, **more))


def test_a_graphs_life_is_reported_in_order_and_launches_in_a_row_are_one_event(tmp_path: Path) -> None:
    told = lifecycle(
        of(
            tmp_path,
            [
                *captured(0, 7),
                call(20, MAKE, 3, aux=GRAPH),
                *replayed(30, 50, 1, FIRST),
                call(90, UPDATE, 2, aux=FIRST),
                *replayed(100, 5, 1, FIRST),
                *replayed(110, 5, 1, SECOND_ONE),
            ],
        )
    )
    events = [(one["event"], one.get("executable"), one.get("count")) for one in told["events"]]
    assert events == [
        ("capture", None, None),
        ("instantiation", None, None),
        ("launches", hex(FIRST), 50),
        ("update", hex(FIRST), None),
        ("launches", hex(FIRST), 5),
        ("launches", hex(SECOND_ONE), 5),
    ]
    capture, instantiation, launches = told["events"][:3]
    assert (capture["calls_into_its_stream"], capture["stream"]) == (7, hex(STREAM))
    assert capture["took_ms"] == pytest.approx(10.1)
    assert (instantiation["handle"], instantiation["took_ms"]) == (hex(GRAPH), 3)
    assert (launches["at_s"], launches["until_s"]) == (0.03, 0.079)
    assert launches["took_ms"] == pytest.approx(5)
    assert (told["captures"], told["instantiations"], told["launches"]) == (1, 1, 60)
    assert told["launches_per_capture"] == 60
    assert told["executables_made_before_the_recording_at_least"] == 1  # two are launched, one was made
    assert any("which capture" in one for one in told["not_known"])


def test_rates_are_those_from_the_first_launch_to_the_last_and_the_often_launched_are_hot(
    tmp_path: Path,
) -> None:
    told = frequency(
        of(
            tmp_path,
            [
                *replayed(0, 101, 10, FIRST),
                *replayed(5, 6, 200, SECOND_ONE),
                *replayed(7, 1, 1, 0xE3),
                *replayed(11, 1, 1, SECOND_ONE, ret=1),
            ],
        )
    )
    rows = {one["executable"]: one for one in told["executables"]}
    first, second, third = (rows[hex(handle)] for handle in (FIRST, SECOND_ONE, 0xE3))
    assert [one["executable"] for one in told["executables"]] == [hex(FIRST), hex(SECOND_ONE), hex(0xE3)]
    assert (first["launches"], first["launches_per_s"], first["usual_interval_ms"]) == (101, 100, 10)
    assert (second["launches"], second["launches_per_s"], second["failed_launches"]) == (6, 5, 1)
    assert (third["launches_per_s"], third["usual_interval_ms"], third["class"]) == (None, None, "not known")
    assert (first["class"], second["class"]) == ("hot", "cold")
    assert told["median_launches_per_s"] == pytest.approx((100 + 5) / 2)
    assert first["in_launch_calls_ms"] == pytest.approx(10.1)


def test_only_the_window_and_the_process_count_and_what_lies_outside_is_reported(tmp_path: Path) -> None:
    catalogue = of(
        tmp_path, [*replayed(0, 30, 100, FIRST), *replayed(50, 20, 10, SECOND_ONE, pid=11, tid=11)]
    )
    told = frequency(catalogue, from_s=1.0, window_s=0.5)
    assert [one["launches"] for one in told["executables"]] == [5]
    assert (told["graph_calls"], told["graph_calls_outside"]) == (5, 25)
    assert (told["from_s"], told["to_s"]) == (1.0, 1.5)
    assert lifecycle(catalogue, 11)["launches"] == 20


def test_nested_calls_are_not_counted_twice(tmp_path: Path) -> None:
    calls = [
        *replayed(0, 5, 1, FIRST),
        *(call(n, "cuGraphLaunch", 0.05, aux=FIRST, nested=1, depth=1) for n in range(5)),
    ]
    assert lifecycle(of(tmp_path, calls))["launches"] == 5


def test_captures_whose_begin_or_end_was_not_seen_are_reported_as_such(tmp_path: Path) -> None:
    told = lifecycle(
        of(
            tmp_path,
            [
                call(5, END),  # begun before the recording
                call(10, BEGIN),
                call(20, BEGIN, stream=9),  # never ended
                call(30, END, ret=901),  # invalidated
                call(40, BEGIN, ret=900),  # refused: nothing began
            ],
        )
    )
    assert (told["captures"], told["captures_failed"], told["captures_without_begin_or_end"]) == (0, 1, 2)
    assert told["launches_per_capture"] is None
    shown = [(one["at_s"], one["took_ms"], one["calls_into_its_stream"]) for one in told["events"]]
    assert shown == [(0.005, None, None), (0.01, pytest.approx(20.1), 0), (0.02, None, None)]
    assert told["failed"] == 2


def test_a_process_without_graphs_is_told_so_and_who_has_some_is_named(tmp_path: Path) -> None:
    catalogue = of(tmp_path, [*replayed(0, 3, 1, FIRST), call(9, "cudaLaunchKernel", pid=11, tid=11)])
    for told in (lifecycle(catalogue, 11), frequency(catalogue, 11)):
        assert (told["graph_calls"], told["total"]) == (0, 0)
        (other,) = told["processes_with_graph_calls"]
        assert (other["pid"], other["launches"]) == (10, 3)
        assert "trainer" in other["name"]


def test_a_recording_of_another_tool_shows_launches_and_no_executable(tmp_path: Path) -> None:
    told = frequency(of(tmp_path, replayed(0, 4, 1, 0), source="kineto"))
    (one,) = told["executables"]
    assert (one["executable"], one["launches"]) == (None, 4)
    assert told["executables_made_before_the_recording_at_least"] == 0


def test_many_launches_of_many_executables_come_in_pages(tmp_path: Path) -> None:
    calls = [call(number, LAUNCH, aux=1 + number % 300) for number in range(600)]
    catalogue = of(tmp_path, calls)
    shown: list[Any] = []
    cursor = None
    while True:
        told = lifecycle(catalogue, cursor=cursor)
        shown += told["events"]
        cursor = told.get("next_cursor")
        if cursor is None:
            break
    assert sum(one["count"] for one in shown) == 600 == told["launches"]


def test_losses_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "lossy.msgpack"
    records = made.joined(replayed(0, 3, 1, FIRST))
    write(path, made.HEADER, [made.apis(), made.process(10), records, made.mark(1, START + SECOND, calls=7)])
    assert lifecycle(Catalogue([str(path)]))["lost_events"] == 7


def test_without_ebpf_it_is_not_known_rather_than_nothing(tmp_path: Path) -> None:
    catalogue = of(tmp_path, replayed(0, 1, 1, FIRST), calls_observed=False)
    for tool in (graph_lifecycle, graph_frequency):
        with pytest.raises(CommandError, match="not known"):
            tool(catalogue, 10)


def test_a_healthy_recording_without_graphs_has_none() -> None:
    told = lifecycle(Catalogue([str(RECORDINGS / "healthy.msgpack")]), 1)
    assert (told["graph_calls"], told["events"], told["processes_with_graph_calls"]) == (0, [], [])


@pytest.mark.parametrize("window_s", [0, -1, float("nan")])
def test_a_window_without_time_is_refused(window_s: float, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="window_s"):
        graph_frequency(of(tmp_path, replayed(0, 3, 1, FIRST)), 10, window_s=window_s)
