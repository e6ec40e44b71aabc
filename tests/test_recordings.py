"""The recordings that come with the project open, hold nothing of their machine, and show what they say."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from gputop import demo
from gputop.analysis.build import explain
from gputop.analysis.compare import Change
from gputop.analysis.compare_parts import compare
from gputop.analysis.evidence.evidence import Evidence
from gputop.api.recording_evidence import evidence_of
from gputop.api.session import open_session
from gputop.demo.stories import STORIES
from gputop.documents.fields import document
from gputop.playback.player import frame_at
from probes.source import Sample
from replay.reader import SessionReader
from scripts import shown
from tests import inside
from tests.json_page import assert_documented

FOLDER = Path(__file__).resolve().parents[1] / "recordings"
FILES = sorted(FOLDER.glob("*.msgpack"))
LARGEST = 2_000_000
# what explain names first, how surely; the advised change of each, and what is gone after it
FIRST = {
    "numpy-sync": ("C02", "proved", "numpy-sync-fixed"),
    "dataloader": ("C12", "proved", "dataloader-fixed"),
    "dataloader-direct": ("C12", "proved", "dataloader-fixed"),
    "dataloader-workers": ("C08", "proved", "dataloader-fixed"),
    "redundant-to-device": ("C05", "proved", "redundant-to-device-fixed"),
}
HEALTHY = ("healthy", "numpy-sync-fixed", "dataloader-fixed", "redundant-to-device-fixed")


@cache
def evidence(name: str) -> Evidence:
    with open_session(FOLDER / f"{name}.msgpack") as session:
        return evidence_of(session)


def test_every_demo_is_recorded_and_small() -> None:
    assert {file.stem for file in FILES} == set(STORIES)
    assert all(file.stat().st_size <= LARGEST for file in FILES)


@pytest.mark.slow
def test_what_the_pages_show_is_what_gputop_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """``make shown`` writes it again."""
    monkeypatch.chdir(FOLDER.parent)
    monkeypatch.setattr(shown, "output_of", lambda words: inside.run(*words).stdout)
    page = shown.TABLE.read_text(encoding="utf-8")
    assert shown.with_table(page) == page
    page = shown.README.read_text(encoding="utf-8")
    assert shown.with_outputs(page) == page
    assert page.count("$ gputop explain recordings/") == 1
    assert page.count("$ gputop diff recordings/") == 1
    page = shown.COMMANDS.read_text(encoding="utf-8")
    assert shown.with_commands(page) == page


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST)
def test_the_cause_is_named_first(name: str) -> None:
    cause, level, _fixed = FIRST[name]
    report = explain(evidence(name))
    first = report.findings[0]
    assert (first.cause, first.kind, first.level) == (cause, "idle", level)
    assert first.cause in report.verdict
    assert report.unexplained_ns <= 0.02 * report.span_ns
    assert report.steps is not None
    assert report.lost_events == 0


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    report = explain(evidence(name))
    assert report.findings == ()
    assert report.idle.lower <= 0.02 * report.span_ns


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST)
def test_the_change_wins_what_was_promised(name: str) -> None:
    cause, _level, fixed = FIRST[name]
    found = compare(evidence(name), evidence(fixed))
    if name == "redundant-to-device":  # its copies became kernels without names: other work, by all signs
        assert "times are not compared" in found.sentence
        assert found.sentence.endswith("; no new cause.")
        assert [row.change for row in found.causes if row.cause == cause] == [Change.GONE]
        return
    duration = found.measure("duration_ns")
    assert duration.before is not None
    assert duration.after is not None
    assert duration.clear
    assert "times as fast" in found.sentence
    assert found.sentence.endswith("; no new cause.")
    (gone,) = (row for row in found.causes if row.cause == cause)
    assert gone.change is Change.GONE
    assert gone.gain_ns is not None
    # the steps' mean: what the whole run took, divided by its steps
    won = duration.before.mean - duration.after.mean
    # it is the GPU's idle time at most; the GPU's own work differs between two runs, too
    assert won <= gone.gain_ns + 0.01 * duration.before.mean, "a bound that holds"
    assert gone.gain_ns <= 2 * won, "and is near enough to be of use"


def test_the_storm_is_reported_with_what_it_cost() -> None:
    report = explain(evidence("storm"))
    (storm,) = report.storms
    assert storm.switches_per_second >= 500
    assert report.idle.estimate is not None
    assert 0 < storm.gpu_ns <= report.idle.estimate
    # the healthy loop may be preempted often, too, but runs so far ahead that the GPU does not notice
    assert not any(storm.gpu_ns for storm in explain(evidence("healthy")).storms)


def test_a_recording_compared_with_itself_has_not_changed() -> None:
    found = compare(evidence("dataloader-workers"), evidence("dataloader-workers"))
    assert found.sentence.startswith("no clear change")
    assert {row.change for row in found.causes} == {Change.SAME}


def test_the_halves_of_a_recording_do_not_differ_clearly() -> None:
    whole = evidence("numpy-sync")
    start, middle = int(whole.header["start_ns"]), (whole.start_ns + whole.end_ns) // 2
    first, second = (explain(whole, stretch=part) for part in ((start, middle), (middle, whole.end_ns)))
    assert first.steps is not None
    assert second.steps is not None
    assert first.findings[0].cause == second.findings[0].cause
    assert first.steps.median_ns == pytest.approx(second.steps.median_ns, rel=0.25)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recording_is_whole_and_private(file: Path) -> None:
    reader = SessionReader(file)
    samples = [item for item in reader.items() if isinstance(item, Sample)]
    assert reader.problems == []
    assert reader.header["private"] is True
    frame = frame_at(reader, len(reader.marks) - 1)
    assert frame.lost.events == 0
    assert frame.calls_per_second > 0
    watched = {row.pid for row in frame.processes}
    for sample in samples:
        if sample.kind == "names":
            rows = zip(sample.data["pid"], sample.data["name"], strict=True)
            assert not [name for pid, name in rows if pid not in watched and not name.startswith("other-")]


def test_the_storm_is_seen_with_its_cause() -> None:
    reader = SessionReader(FOLDER / "storm.msgpack")
    (storm,) = frame_at(reader, len(reader.marks) - 1).storms
    assert storm.involuntary_per_second >= 500
    workers = [share.fraction for share in storm.occupants if share.name == "pt_data_worker"]
    assert len(workers) == 6
    assert sum(workers) > 0.5


@pytest.mark.parametrize("name", ["dataloader-workers", "storm"])
def test_json_and_its_documentation_agree(name: str) -> None:
    told = document(explain(evidence(name)))
    assert told["storms"] if name == "storm" else told["findings"]
    text = assert_documented(told)
    for level in ("proved", "strong", "hint"):
        assert f"`{level}`" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cause", "source", "call"),
    [
        ("storm", "C15", "stories.py", "cuda.synchronize(stream)"),
        ("dataloader-direct", "C04", "loaders.py", "next(batches)"),
        ("dataloader-workers", "C08", "loaders.py", "np.stack(labels)"),
        ("redundant-to-device", "C05", "transfers.py", "torch.cuda(np.array("),
    ],
)
def test_a_finding_names_the_line_that_is_in_the_demos_source(
    name: str, cause: str, source: str, call: str
) -> None:
    found = next(one for one in explain(evidence(name)).findings if one.cause == cause)
    assert found.line is not None
    assert found.line.file.endswith(source)
    assert call in (Path(str(demo.__file__)).parent / source).read_text().splitlines()[found.line.line - 1]


def test_who_has_workers_is_advised_to_run_fewer_and_who_has_none_is_not() -> None:
    told = {}
    for name in ("dataloader-workers", "storm"):
        report = explain(evidence(name))
        told[name] = " ".join(text for one in report.findings if one.cause == "C13" for text in one.advice)
    assert "num_workers" in told["dataloader-workers"]
    assert "taskset" in told["storm"]
    assert "num_workers" not in told["storm"]
