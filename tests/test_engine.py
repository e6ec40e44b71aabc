"""Frames: the same from a live run, a replay and a seek; storms, processes, GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from gputop.engine.engine import Engine
from gputop.engine.facts import EXITED_SHOWN
from gputop.engine.frame import Frame, ProcessRow
from gputop.playback.player import frame_at
from gputop.ui.model.gpus.gpu_history import GpuHistory
from gputop.ui.model.look import UNICODE
from gputop.ui.model.process.call_table import shares_text
from probes.schema import ALIASED, Kind
from probes.source import NOTE, PROBLEM, Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import items
from tests.items import HEADER, MS, SECOND, START

TICK = 250 * MS


def play(stream: Iterable[Item], window_ns: int = 2 * SECOND) -> list[Frame]:
    """All frames of a stream."""
    engine = Engine(HEADER, window_ns)
    return [engine.frame() for item in stream if engine.feed(item)]


def random_session(seed: int, ticks: int) -> list[Item]:
    """Calls, slices, on-CPU slices, births, exits, samples in a plausible order."""
    random = np.random.default_rng(seed)
    stream: list[Item] = [items.apis(), items.process(10), items.names(START, {10: "main", 0: "idle"})]
    for tick in range(ticks):
        begin = START + tick * TICK
        count = int(random.integers(0, 60))
        records = items.empty(count)
        records["t_end"] = np.sort(begin + random.integers(1, TICK, count))
        records["kind"] = random.choice([Kind.CALL, Kind.OFFCPU, Kind.OCCUPANT], count, p=[0.6, 0.3, 0.1])
        records["duration"] = random.integers(1, 400 * MS, count)
        records["pid"], records["tid"] = 10, random.choice([10, 11, 12], count)
        records["op"] = random.integers(0, 5, count)
        rows = records.view(ALIASED)
        waits = rows["kind"] == Kind.OFFCPU
        rows["runnable"][waits] = rows["duration"][waits] // random.integers(1, 4)
        rows["queue_cpu"][waits] = 0
        stream.append(records)
        if tick % 7 == 3:
            stream.append(items.event(Kind.FORK, begin + 5, tid=100 + tick))
            stream.append(items.names(begin + 5, {100 + tick: f"worker{tick}"}))
            stream.append(items.process(20 + tick, begin + 6, parent_pid=10))
        if tick % 11 == 8:
            stream.append(Sample(PROBLEM, begin + 9, {"text": f"trouble {tick}"}))
            stream.append(items.process(16 + tick, begin + 9, exited_ns=begin + 9))
        stream.append(items.gpus(begin + 10, int(random.integers(0, 101)), [10]))
        mark_ns = begin + TICK + int(random.integers(0, MS))
        off = begin + int(random.integers(0, TICK))
        stream.append(
            items.still_open(
                mark_ns, [{"tid": 10, "off_since": off}, {"tid": 11, "op": 1, "call_since": off}]
            )
        )
        stream.append(items.mark(tick + 1, mark_ns, calls=tick // 5))
    return stream


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_replay_and_seek_show_the_live_frames(tmp_path: Path, seed: int) -> None:
    stream = random_session(seed, ticks=300)
    live = play(stream)
    with_writer = SessionWriter(tmp_path / "session.msgpack", HEADER)
    for item in stream:
        with_writer.write(item)
    with_writer.close()
    reader = SessionReader(tmp_path / "session.msgpack")
    engine = Engine(reader.header)
    replayed = [engine.frame() for item in reader.items() if engine.feed(item)]
    assert replayed == live
    for index in (0, 1, 7, 8, 9, 150, 239, 240, 241, 299):
        assert frame_at(reader, index) == live[index], f"seek to {index}"


def storm_session(
    involuntary: int,
    runnable_each: int,
    seconds: int = 2,
    by: Callable[[int], tuple[int, int]] = lambda _row: (7, 77),
) -> list[Item]:
    """A thread that is preempted ``involuntary`` times a second, each time by a (process, thread): 77."""
    stream: list[Item] = [items.apis(), items.process(10), items.names(START, {10: "main", 77: "hog"}, 77)]
    for tick in range(4 * seconds):
        begin, step = START + tick * TICK, 4 * TICK // max(involuntary, 1)
        for row in range(involuntary // 4):
            end, (pid, tid) = begin + (row + 1) * step, by(tick * (involuntary // 4) + row)
            running = items.event(Kind.OCCUPANT, end, pid=pid, tid=tid, duration=runnable_each)
            stream += [items.off(end, 0, runnable_each, involuntary=1), running]
        stream += [items.still_open(begin + TICK, [{}]), items.mark(tick, begin + TICK)]
    return stream


def test_a_storm_needs_500_preemptions_a_second_and_20_percent_of_the_time() -> None:
    assert play(storm_session(600, MS // 2))[-1].storms
    assert not play(storm_session(400, MS // 2))[-1].storms
    assert not play(storm_session(600, MS // 10))[-1].storms


def test_a_storm_names_who_had_the_cpu_with_shares_of_the_time_waited() -> None:
    storm = play(storm_session(600, MS // 2))[-1].storms[0]
    assert storm.involuntary_per_second == pytest.approx(600)
    assert storm.runnable_percent == pytest.approx(30)
    assert [(share.name, share.pid) for share in storm.occupants] == [("hog", 7)]
    assert storm.occupants[0].fraction == pytest.approx(1)


def test_processes_that_come_and_go_are_named_together_also_where_each_has_little() -> None:
    def by(row: int) -> tuple[int, int]:  # every second time the hog, else one of 120 compilers in turn
        return (7, 77) if row % 2 else (1000 + row // 10, 1000 + row // 10)

    brief = {1000 + number: "cc1plus" for number in range(120)}
    stream = storm_session(600, MS // 2, by=by)
    stream.insert(3, items.names(START, brief, 1000))
    frame = play(stream)[-1]
    (storm,) = frame.storms
    found: dict[str, float] = {}
    for share in storm.occupants:
        found[share.name] = found.get(share.name, 0.0) + share.fraction
    assert found == {"hog": pytest.approx(0.5, abs=0.01), "cc1plus": pytest.approx(0.5, abs=0.01)}
    assert sum(share.threads for share in storm.occupants if share.name == "cc1plus") == 120
    assert shares_text(storm.occupants, UNICODE, 1).startswith(("hog 50%", "cc1plus x"))
    (row,) = frame.processes
    assert sum(share.fraction for share in row.threads[0].preempted_by) == pytest.approx(1)


def test_a_storm_is_reported_only_after_two_seconds() -> None:
    assert not any(frame.storms for frame in play(storm_session(600, MS // 2))[:7])


def only(frame: Frame) -> ProcessRow:
    """The single process of a frame."""
    (row,) = frame.processes
    return row


def test_rates_refer_to_the_window() -> None:
    stream: list[Item] = [items.apis(), items.process(10)]
    for tick in range(8):
        begin = START + tick * TICK
        stream += [items.call(begin + 1000 * row, 500, tid=10) for row in range(1, 26)]
        stream += [items.call(begin + 1000 * row, 400, "cuLaunchKernel", nested=1) for row in range(1, 26)]
        stream += [items.still_open(begin + TICK, [{}]), items.mark(tick, begin + TICK)]
    row = only(play(stream)[-1])
    assert row.calls_per_second == pytest.approx(100)  # the nested driver call is the same operation
    assert [(call.api, call.nested, call.count) for call in row.calls] == [
        ("cudaLaunchKernel", False, 200),
        ("cuLaunchKernel", True, 200),
    ]
    assert row.top_api == "cudaLaunchKernel"
    assert row.top_api_ns_per_second == pytest.approx(50_000)


def test_errors_are_counted_and_not_ready_is_none() -> None:
    stream: list[Item] = [items.apis(), items.process(10)]
    stream += [
        items.call(START + row, 5, "cudaEventQuery", ret=ret) for row, ret in enumerate((0, 600, 2, 35))
    ]
    stream += [items.still_open(START + TICK, [{}]), items.mark(1, START + TICK)]
    assert only(play(stream)[0]).calls[0].errors == 2


def test_a_call_that_has_not_returned_is_shown_with_its_age() -> None:
    row = {"op": items.api.OP_OF["cudaStreamSynchronize"], "call_since": START + 50 * MS}
    stream: list[Item] = [items.apis(), items.process(10), items.still_open(START + TICK, [row])]
    call = only(play([*stream, items.mark(1, START + TICK)])[0]).calls[0]
    assert (call.api, call.count, call.in_progress, call.in_progress_ns) == (
        "cudaStreamSynchronize",
        0,
        1,
        200 * MS,
    )


def test_exited_processes_stay_listed_the_newest_first_to_stay() -> None:
    stream: list[Item] = [items.apis(), items.process(10)]
    for pid in range(100, 100 + EXITED_SHOWN + 5):
        stream += [items.process(pid), items.process(pid, START + pid, exited_ns=START + pid)]
    rows = play([*stream, items.mark(1, START + TICK)])[0].processes
    exited = [row.pid for row in rows if row.exited_ns is not None]
    assert exited == list(range(105, 100 + EXITED_SHOWN + 5))
    assert rows[0].pid == 10
    assert rows[0].exited_ns is None


def test_a_reused_process_number_is_a_new_process() -> None:
    stream: list[Item] = [items.apis(), items.process(10), items.process(10, START + 5, exited_ns=START + 5)]
    stream += [items.process(10, START + 9, name="second"), items.mark(1, START + TICK)]
    row = only(play(stream)[0])
    assert (row.name, row.exited_ns, row.start_ns) == ("second", None, START + 9)


def test_gpu_figures_older_than_two_seconds_are_unknown_with_the_reason() -> None:
    stream: list[Item] = [items.apis(), items.gpus(START, 50), items.mark(1, START + TICK)]
    stream += [items.mark(2, START + 3 * SECOND)]
    fresh, stale = (frame.gpus[0] for frame in play(stream))
    assert (fresh.utilization_percent, dict(fresh.unavailable)["fan_percent"]) == (
        50,
        "not offered by this GPU",
    )
    assert stale.utilization_percent is None
    assert "NVML has not answered for 3 s" in dict(stale.unavailable)["utilization_percent"]


def test_processes_show_the_gpus_nvml_lists_them_on() -> None:
    stream: list[Item] = [items.apis(), items.process(10), items.process(11), items.gpus(START, 50, [10])]
    rows = play([*stream, items.mark(1, START + TICK)])[0].processes
    assert [(row.gpus, row.gpu_memory_bytes) for row in rows] == [((0,), 1 << 20), ((), 0)]
    without = play([items.apis(), items.process(10), items.mark(1, START + TICK)])[0]
    assert only(without).gpus is None


def test_losses_are_those_of_the_mark() -> None:
    frame = play([items.apis(), items.mark(1, START + TICK, calls=3, slices=2)])[0]
    assert frame.lost.events == 5
    assert dict(frame.lost.by_kind)["calls"] == 3


def test_notes_about_libraries_give_way_to_others_in_the_order_of_their_times() -> None:
    ended = Sample(NOTE, START, {"text": "the kernel ends process 10: out of memory", "pid": 10})
    libraries = [
        Sample(NOTE, START + at, {"text": f"library {at}", "layer": "driver"}) for at in range(1, 13)
    ]
    later = Sample(NOTE, START + 20, {"text": "something else", "pid": 10})
    frame = play([items.apis(), ended, *libraries, later, items.mark(1, START + TICK)])[0]
    assert frame.notes == (
        "the kernel ends process 10: out of memory",
        *(f"library {at}" for at in range(7, 13)),
        "something else",
    )


def test_ended_helpers_that_never_called_cuda_are_not_listed() -> None:
    stream: list[Item] = [items.apis()]
    for pid, lived, called in ((20, MS, False), (21, MS, True), (22, 2 * SECOND, False)):
        stream += [
            items.process(pid),
            items.process(pid, START + lived, exited_ns=START + lived, called=called),
        ]
    stream = [*stream, items.mark(1, START + TICK)]
    for sample in stream:
        if isinstance(sample, Sample) and sample.kind == "process" and sample.data["exited_ns"]:
            sample.data.pop("seen_ns")  # as the source tells an end
    assert [row.pid for row in play(stream)[0].processes] == [21, 22]


def test_blocked_runnable_and_cpu_of_a_process_refer_to_the_same_time() -> None:
    born, ended = START + 50 * MS, START + 150 * MS
    stream: list[Item] = [items.apis(), items.process(10), items.event(Kind.FORK, born)]
    stream += [items.off(born + 60 * MS, 40 * MS, 10 * MS), items.event(Kind.EXIT, ended)]
    row = only(play([*stream, items.still_open(START + TICK, []), items.mark(1, START + TICK)])[0])
    assert row.blocked_percent == pytest.approx(16)
    assert row.runnable_percent == pytest.approx(4)
    assert row.on_cpu_percent == pytest.approx(20)


@pytest.mark.parametrize("rate_hz", [1e12, -1.0, float("nan"), float("inf")])
def test_a_rate_that_no_recorder_has_is_not_believed(rate_hz: float) -> None:
    engine = Engine({**HEADER, "rate_hz": rate_hz}, 2 * SECOND)
    for item in (items.apis(), items.gpus(START, 50), items.mark(1, START + TICK)):
        engine.feed(item)
    frame = engine.frame()
    assert frame.rate_hz == 0
    GpuHistory().append(frame)  # divides by it
