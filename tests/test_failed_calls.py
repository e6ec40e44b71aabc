"""Calls that fail are counted by error and line; what the GPU was given before the worst ones is reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.build import explain
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.documents.fields import document
from gputop.engine.calls.cuda_errors import cuda_error
from gputop.engine.calls.failed_calls import LAUNCHES, Failure
from gputop.engine.session_totals import Stats, collect, finish
from gputop.engine.stats_output import stats_to_json, stats_to_text
from gputop.engine.tally import tally
from gputop.playback.feed import Explained
from probes.source import FRAMES, Item, Sample
from scripts import cuda_errors
from tests import fake_frames as fake
from tests import fake_reports as reports
from tests import items
from tests.items import HEADER, MS, SECOND, START
from tests.json_page import assert_valid
from tests.screen_support import Shown

ALLOC, LAUNCH, SYNC, QUERY = "cudaMalloc", "cudaLaunchKernel", "cudaStreamSynchronize", "cudaEventQuery"
HERE = 1 << 20  # a stack


def stack() -> Sample:
    return Sample(FRAMES, START, {"pid": [10], "stack": [HERE], "frames": [[["/w/train.py", 42, "step"]]]})


def stats_of(*calls: Item) -> Stats:
    ordered = sorted(calls, key=lambda call: int(call["t_end"][0]) if not isinstance(call, Sample) else 0)
    stream = [items.apis(), items.process(10, name="train"), stack(), *ordered, items.mark(1, START + SECOND)]
    return collect(HEADER, stream)


def failures(*calls: Item) -> tuple[Failure, ...]:
    return tuple(one for process in stats_of(*calls).processes for one in process.failures)


# in a process of its own: other tests must not find CUDA in this one
ITS_ERRORS = """
import ctypes, json, sys
runtime = ctypes.CDLL(sys.argv[1])
runtime.cudaGetErrorName.restype = runtime.cudaGetErrorString.restype = ctypes.c_char_p
print(json.dumps({code: [runtime.cudaGetErrorName(code).decode(), runtime.cudaGetErrorString(code).decode()]
                  for code in range(1, int(sys.argv[2]))}))
"""


ROOT = Path(__file__).resolve().parents[1]


def runtimes() -> list[Path]:
    found = [Path(entry) / "nvidia" for entry in sys.path]
    places = ("cuda_runtime/lib/libcudart.so.12", "cu13/lib/libcudart.so.13")
    return [folder / place for folder in found for place in places if (folder / place).exists()]


@pytest.mark.parametrize("library", runtimes(), ids=lambda path: path.name)
def test_names_and_texts_are_those_of_nvidias_own_runtime(library: Path) -> None:
    command = [sys.executable, "-c", ITS_ERRORS, str(library), str(cuda_errors.MOST)]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    known = {int(code): said for code, said in told.items() if said[0] != cuda_errors.UNKNOWN}
    assert {
        code: [cuda_error("runtime", code).name, cuda_error("runtime", code).text] for code in known
    } == known
    assert len(known) > 100


@pytest.mark.skipif(not runtimes(), reason="NVIDIA's runtime is not installed: make setup")
def test_the_table_is_as_its_script_writes_it() -> None:
    script = "from scripts import cuda_errors; print(cuda_errors.text(), end='')"
    command = [sys.executable, "-c", script]  # as above
    written = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert cuda_errors.TABLE.read_text(encoding="utf-8") == written


def test_a_code_has_the_name_that_its_layer_gives_it() -> None:
    names = [cuda_error(layer, 2).name for layer in ("runtime", "driver", "nccl")]
    assert names == ["cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "ncclSystemError"]
    assert cuda_error("runtime", 998).name == "CUDA error 998"


def test_only_errors_after_which_nothing_goes_are_sticky() -> None:
    sticky = [code for code in range(1, 1000) if cuda_error("runtime", code).sticky]
    assert {700, 710, 719} <= set(sticky)
    assert not {1, 2, 98, 600, 801} & set(sticky)


def test_calls_that_failed_are_counted_by_error_and_line() -> None:
    (one,) = failures(
        *(items.call(START + row * MS, 1000, ALLOC, ret=2, stack=HERE) for row in (5, 7, 9)),
        items.call(START + 6 * MS, 1000, ALLOC, stack=HERE),
    )
    assert (one.api, one.error.name, one.count) == (ALLOC, "cudaErrorMemoryAllocation", 3)
    assert (one.first_ns, one.last_ns) == (5 * MS, 9 * MS)
    assert one.line is not None
    assert one.line.text() == "train.py:42 in step()"


def test_answers_of_queries_and_calls_inside_of_calls_are_no_failures() -> None:
    assert not failures(
        items.call(START + MS, 1000, QUERY, ret=600),
        items.call(START + 2 * MS, 1000, "cuMemAlloc", ret=2, nested=1),
        items.call(START + 3 * MS, 1000, ALLOC),
    )


def crash(synced_at: int, stream_synced: int = 0) -> tuple[Failure, ...]:
    """Twelve launches, a wait that succeeds behind one of them, and one that finds the context broken."""
    calls = [items.call(START + row * MS, 1000, LAUNCH, aux=row, stream=row % 2) for row in range(12)]
    wait = "cudaDeviceSynchronize" if not stream_synced else SYNC
    calls += [items.call(START + synced_at * MS + 10, 5, wait, stream=stream_synced)]
    calls += [items.call(START + row * MS, 1000, SYNC, ret=700) for row in (20, 21)]
    return failures(*calls)


def test_before_a_sticky_error_stand_the_launches_that_no_wait_has_proved_to_be_done() -> None:
    (one,) = crash(synced_at=8)
    assert one.count == 2
    assert one.error.sticky
    assert [launch.kernel for launch in one.launches] == [11, 10, 9]


def test_the_wait_for_one_stream_proves_nothing_of_another() -> None:
    (one,) = crash(synced_at=9, stream_synced=1)
    assert [launch.kernel for launch in one.launches] == [11, 10, 8, 6, 4, 2, 0]
    assert len(one.launches) <= LAUNCHES


def mixed() -> list[Item]:
    """Failures of two processes among launches, in ticks."""
    stream: list[Item] = [items.apis(), items.process(10), items.process(11), stack()]
    for row in range(60):
        pid = 10 + row % 2
        at = START + row * MS
        kind, code = (SYNC, 700) if row in (45, 52, 58) else (ALLOC, 2) if row % 7 == 3 else (LAUNCH, 0)
        stream += [items.call(at, 1000, kind, pid=pid, tid=pid, ret=code, aux=row, stack=HERE)]
        if row % 10 == 9:
            stream += [items.mark(row // 10, at)]
    return stream


@pytest.mark.slow
def test_sums_of_two_parts_are_those_of_the_whole() -> None:
    for place in range(4, 68, 3):
        stream = mixed()
        whole = collect(HEADER, stream)
        first, second = tally(stream[:place]), tally(stream[place:])
        first.merge(second.payload())
        for sample in stream[place:]:
            if isinstance(sample, Sample) and sample.kind == "mark":
                first.consume(sample)
        joined = finish(HEADER, first)
        assert [one.failures for one in joined.processes] == [one.failures for one in whole.processes]
        assert any(failure.launches for one in whole.processes for failure in one.failures)


def test_sums_of_a_gputop_that_did_not_know_of_failures_are_not_believed_where_calls_failed() -> None:
    told = tally(mixed()).payload()
    del told["failed"]
    with pytest.raises(ValueError, match="lack the failed calls"):
        tally([]).merge(told)
    healthy = tally([items.call(START, 1000, LAUNCH)]).payload()
    del healthy["failed"]
    tally([]).merge(healthy)


def test_text_and_json_of_the_totals_show_them() -> None:
    stats = stats_of(items.call(START + 250 * MS, 1000, ALLOC, ret=2, stack=HERE))
    said = (
        "cudaMalloc: cudaErrorMemoryAllocation (2), out of memory: once, at 0.250 s at train.py:42 in step()"
    )
    assert said in stats_to_text(stats, None)
    document = stats_to_json(stats)
    assert_valid(document)
    assert document["processes"][0]["failures"][0]["error"] == "cudaErrorMemoryAllocation"


def test_who_has_no_failures_is_told_as_ever() -> None:
    stats = stats_of(items.call(START, 1000, LAUNCH))
    assert "failures" not in stats_to_json(stats)["processes"][0]
    assert "FAILED" not in stats_to_text(stats, None)


def test_the_explanation_shows_them_and_of_a_stretch_only_those_in_it() -> None:
    gatherer = Gatherer(HEADER)
    for item in mixed():
        gatherer.feed(item)
    evidence = assemble(gatherer)
    report = explain(evidence)
    told = document(report)
    assert_valid(told)
    assert {row["code"] for row in told["failures"]} == {2, 700}
    assert "illegal memory access" in report_to_text(report)
    early = explain(evidence, stretch=(START, START + 20 * MS))
    assert {one.error.code for one in early.failures} == {2}
    assert {one.pid for one in explain(evidence, pids=frozenset({11})).failures} == {11}


def test_the_tab_of_errors_is_there_only_for_a_process_that_has_some() -> None:
    found = crash(synced_at=8)
    frame = fake.frame(processes=2)
    pid = frame.processes[0].pid
    broken = tuple(
        Failure(pid, pid, one.api, one.layer, one.error, 2, one.first_ns, 9, None, one.launches)
        for one in found
    )
    with Shown(frame, selected_pid=pid) as shown:
        assert "Errors" not in shown.text()
        shown.explain(Explained(reports.report(failures=broken), frame.time_ns, START))
        rows = shown.text().splitlines()
        (y,) = [place for place, row in enumerate(rows) if "Flame  Errors" in row]
        shown.click(rows[y].index("Errors"), y)
        text = shown.text()
        assert "cudaStreamSynchronize: cudaErrorIllegalAddress (700)" in text
        assert "cudaLaunchKernel of 0xb" in text
        shown.explain(Explained(reports.report(), frame.time_ns, START))
        assert "Errors" not in shown.text()
