"""A comparison in parts says what that of the whole says, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gputop.analysis import compare_parts
from gputop.analysis.compare import Diff
from gputop.api import comparing, stretches
from gputop.api.comparing import part_by_part
from gputop.api.functions import diff, to_json
from gputop.api.reading import SILENT
from gputop.api.session import Session, reader_of
from gputop.parts.mapreduce import Segment
from tests import long_session
from tests.inside import run

FOLDER = Path(__file__).resolve().parents[1] / "recordings"
PAIRS = [
    ("dataloader", "dataloader-fixed"),
    ("numpy-sync", "numpy-sync-fixed"),
    ("redundant-to-device", "redundant-to-device-fixed"),
    ("storm", "healthy"),
    ("dataloader-workers", "dataloader-direct"),
]


def whole_part(path: Path) -> compare_parts.Compared:
    """A recording as one part."""
    with Session(path) as session:
        work = part_by_part(session)
        segment = Segment(session.path, -1, len(reader_of(session).marks))
        after, rest = work.follow(segment, work.begin())
        assert after is None
        found = rest()
        assert found is not None
        return found


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.slow
@pytest.mark.mainly("pair1", "pair3")
def test_of_one_part_each_it_is_the_comparison_of_the_whole(pair: tuple[str, str]) -> None:
    paths = [FOLDER / f"{name}.msgpack" for name in pair]
    found = compare_parts.finish(*map(whole_part, paths))
    assert to_json(found) == to_json(diff(*paths))


def large(found: Diff) -> dict[str, Any]:
    """The same of causes that take a tenth of the time: what is little may be a finding in one way only."""
    known, large = shares(found), set()
    for row in found.causes:
        for side, ns in ((found.before, row.before), (found.after, row.after)):
            if ns is not None and ns * side.units > 0.1 * side.report.span_ns:
                large.add(row.cause)
    return {cause: known[cause] for cause in large}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.slow
@pytest.mark.mainly("pair1")
def test_of_several_parts_each_it_says_what_the_whole_says(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = FOLDER / f"{pair[0]}.msgpack", FOLDER / f"{pair[1]}.msgpack"
    whole, found = diff(*paths), in_parts(paths, monkeypatch)
    assert "parts were analysed and joined" in found.notes[0]
    assert (found.unit, found.ratio.times) == (whole.unit, whole.ratio.times)
    assert {**shares(found), **large(whole)} == shares(found)
    assert {**shares(whole), **large(found)} == shares(whole)
    for one, other in ((found.before, whole.before), (found.after, whole.after)):
        assert (one.report.idle.lower, one.report.span_ns) == (other.report.idle.lower, other.report.span_ns)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two recordings that go on for some time."""
    folder = tmp_path_factory.mktemp("long")
    for name in ("dataloader", "dataloader-fixed"):
        long_session.write(FOLDER / f"{name}.msgpack", folder / name, 12_000)
    return folder / "dataloader", folder / "dataloader-fixed"


def in_parts(long: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Diff:
    """The comparison in parts of about 60 kB."""
    monkeypatch.setattr(stretches, "LEAST_PART", 60_000)
    monkeypatch.setattr(stretches, "BASE", 0)
    with Session(long[0]) as before, Session(long[1]) as after:
        return comparing.in_parts(before, after, 1, SILENT)


def shares(found: Diff) -> dict[str, Any]:
    """What a comparison comes to."""
    return {row.cause: (str(row.change), row.proved) for row in found.causes}


@pytest.mark.slow
@pytest.mark.long
def test_of_many_parts_it_says_the_same(long: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole, found = diff(*long), in_parts(long, monkeypatch)
    assert found.notes[0].startswith("BEFORE is too long to be analysed at once")
    parts = int(found.notes[0].split(": ")[1].split()[0])
    assert parts >= 4
    assert (found.unit, found.ratio.times) == (whole.unit, whole.ratio.times)
    assert shares(found) == shares(whole)
    for mine, theirs in zip(found.measures, whole.measures, strict=True):
        assert mine.name == theirs.name
        for one, other in ((mine.before, theirs.before), (mine.after, theirs.after)):
            assert one is not None
            assert other is not None
            assert abs(one.count - other.count) <= 2 * parts
            assert one.median == pytest.approx(other.median, rel=0.05, abs=1)
            assert one.usual == pytest.approx(other.usual, rel=0.05, abs=0.2)
    assert found.before.report.idle.lower == whole.before.report.idle.lower
    assert found.after.report.idle.lower == whole.after.report.idle.lower


@pytest.mark.long
def test_what_does_not_fit_is_compared_in_parts(
    long: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "NEED", 10_000)
    printed = run("diff", "--memory", "0.3", *map(str, long)).stdout
    assert "BEFORE is too long to be analysed at once" in printed
    assert "C12 is gone" in printed
