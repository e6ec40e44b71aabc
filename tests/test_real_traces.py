"""Ten small files of real GPUs, a fault each: what gputop says of them is what their rows say.

They are others' and lie beside the checkout on some machines; ``make real-traces`` takes any folder of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from gputop.analysis.answer.report import Report
from tests.reality.blind import NEAR, SKEW_NS, blinded
from tests.reality.judge import explained, judged_by
from tests.reality.raw import read
from tests.reality.table import page

TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
# of each: the classes that are right, and the causes that must not be reported of it
FILES: dict[str, tuple[set[str], set[str]]] = {
    "01_rank1_gpu1.json.gz": ({"compute", "communication"}, {"C25"}),
    "02_old_kineto_num_workers_0.json.gz": ({"input"}, {"C25"}),
    "03_hip.json.gz": ({"launch", "startup"}, set()),
    "04_nsys_two_gpus.sqlite": ({"launch", "host"}, {"C25"}),
    "05_loader_after_reads.json.gz": ({"input"}, {"C01", "C02"}),
    "07_first_use.json.gz": ({"startup"}, {"C20", "C21", "C22"}),
    "09_unlinked_kernels.json.gz": ({"None"}, {"C06", "C28"}),
    "10_nsys_graph_trace.sqlite": ({"launch", "startup"}, set()),
    "11_nsys_only_copies.sqlite": ({"copy"}, {"C06"}),
    "13_refused_by_own_reader.json.gz": ({"host", "launch"}, set()),
}


def trace(name: str) -> Path:
    """One of them."""
    if not (TRACES / name).exists():
        pytest.skip("there are no traces of real GPUs beside the checkout")
    return TRACES / name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where imported traces are."""
    return tmp_path_factory.mktemp("imported")


@cache
def reported(name: str, folder: Path) -> Report:
    """What gputop says of one, which is imported there."""
    report = explained(trace(name), folder)
    assert report is not None
    return report


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_idle_time_gpus_and_class_are_those_of_the_rows(name: str, folder: Path) -> None:
    report = reported(name, folder)
    row = judged_by(report, trace(name))
    assert row.exact, row.idle
    right, wrong = FILES[name]
    assert row.named in right
    assert row.named in row.allowed
    assert {one.cause for one in report.findings} & wrong == set()
    assert {one.label for one in report.gpus} == {f"GPU {one.gpu}" for one in read(trace(name)).work}
    assert "the chain is not known" not in report.verdict
    assert "no recurring stall" not in report.verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_without_their_kernels_nothing_false_is_proved(name: str, folder: Path) -> None:
    row = judged_by(reported(name, folder), trace(name))
    blind = list(blinded(folder / f"{name}.msgpack", name))
    for one in blind:
        assert one.overlap_ns <= SKEW_NS, one
        assert one.bounded, one
        assert one.apart is None or one.apart <= NEAR, one
    text = page([row], blind, ["github.com/someone/something: 1 file"])
    assert "✗" not in text.partition("A cross stands")[2]


@pytest.mark.slow
def test_warm_up_is_never_each_step(folder: Path) -> None:
    report = reported("07_first_use.json.gz", folder)
    assert (report.findings, report.what_if) == ((), ())
    assert "step" not in report.verdict


@pytest.mark.slow
def test_of_the_loader_the_time_the_operator_and_the_step_are_right(folder: Path) -> None:
    """By the rows 96 % of the idle time lies in it; eight bytes are sent before a batch."""
    report = reported("05_loader_after_reads.json.gz", folder)
    finding = report.findings[0]
    assert (finding.cause, finding.level) == ("C12", "proved")
    assert finding.loss.lower > 0.95 * report.idle.lower
    assert "_SingleProcessDataLoaderIter.__next__" in "; ".join(finding.evidence)
    assert "8B" not in "; ".join(finding.advice)
