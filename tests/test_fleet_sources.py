"""What ``gputop fleet ingest`` takes for a session: segments of a folder are one, sums alone are one, too."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gputop.api.functions import stats
from gputop.api.reading import SILENT
from gputop.engine.tally import Tally
from gputop.fleet.explain_task import content_hash, explain_task
from gputop.fleet.ingest import ingest
from gputop.fleet.lake.lake_sources import sources
from gputop.recording.adaptive import SumsOnly
from probes.source import MARK, Sample
from replay.segments import SegmentLimits, SegmentWriter
from tests.conftest import needed
from tests.fleet_jobs import CPU, Job, record
from tests.fleet_lakes import asked
from tests.split_recording import read, write

JOB = Job(1, late=1, ms=9, how=CPU)
EVERY = 1  # marks of a segment


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Recordings of the ranks of a job."""
    for module in ("duckdb", "pyarrow"):
        needed(module)
    return record(tmp_path_factory.mktemp("ranks"), JOB)


def segmented(file: Path, folder: Path) -> Path:
    """The same recording in segments."""
    header, items = read(file)
    now = [0]
    limits = SegmentLimits(span_ns=EVERY)
    writer = SegmentWriter(str(folder), header, limits, sums=Tally, clock=lambda: now[0])
    for item in items:
        now[0] += isinstance(item, Sample) and item.kind == MARK
        writer.write(item)
    writer.close()
    assert len(list(folder.iterdir())) >= 2
    return folder


def summed(file: Path, path: Path) -> Path:
    """The same recording with sums only."""
    header, items = read(file)
    detail = SumsOnly(header)
    return write(path, header, [*(one for item in items for one in detail.consume(item)), *detail.finish()])


def test_segments_are_one_session_and_show_what_the_whole_recording_reports(
    ranks: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    for file in ranks:
        segmented(file, folder / file.stem)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert ingest(map(str, ranks), str(whole), 1).explained == len(ranks)
    done = ingest([str(folder)], str(cut), 1)
    assert (done.explained, done.problems) == (len(ranks), ())
    text = "SELECT job, rank, cause, loss_ns FROM findings ORDER BY ALL"
    assert asked(cut, text) == asked(whole, text)
    text = "SELECT c.rank, seq, end_ns, idle_ns FROM collectives JOIN communicators c USING (member)"
    text += " ORDER BY ALL"
    assert asked(cut, text) == asked(whole, text)
    assert {row[0] for row in asked(cut, "SELECT path FROM sessions")} == {
        str(folder / file.stem) for file in ranks
    }
    shutil.copytree(folder / ranks[0].stem, tmp_path / "copy")
    again = ingest([str(folder), str(tmp_path / "copy")], str(cut), 1)
    assert (again.explained, again.known) == (0, len(ranks) + 1)


def test_a_segment_is_a_session_where_it_is_named_or_lies_among_others(
    ranks: list[Path], tmp_path: Path
) -> None:
    one, two = segmented(ranks[0], tmp_path / "one"), segmented(ranks[1], tmp_path / "two")

    def found(*paths: Path) -> list[str]:
        return [task.path for task in sources(map(str, paths), frozenset(), frozenset(), SILENT).tasks]

    (first, second, *_) = sorted(one.iterdir())
    assert found(first) == [str(first)]
    assert found(one) == [str(one)]
    shutil.copy(ranks[2], one / "beside.msgpack")
    assert found(one) == [str(one), str(one / "beside.msgpack")]
    second.write_bytes(b"torn")
    assert found(one)[0] == str(one)
    os.replace(two / first.name, one / "00099.gputop")  # of another recording
    assert str(one) not in found(one)
    assert len(found(one)) == len(list(one.iterdir()))


def test_segments_in_a_storage_are_one_session(ranks: list[Path], tmp_path: Path) -> None:
    fsspec = needed("fsspec")
    folder = segmented(ranks[0], tmp_path / "session")
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/segments", recursive=True)
    (task,) = sources(["memory://segments"], frozenset(), frozenset(), SILENT).tasks
    assert len(task.segments) == len(list(folder.iterdir()))
    outcome = explain_task(task)  # by this process, whose memory it is
    assert outcome.session_id == content_hash(str(folder))
    assert [row["path"] for row in outcome.rows["sessions"]] == ["memory:///segments"]
    assert outcome.rows["problems"] == ()


def test_sums_alone_are_a_session_of_which_is_reported_what_sums_show(
    ranks: list[Path], tmp_path: Path
) -> None:
    file = summed(ranks[0], tmp_path / "sums.msgpack")
    lake = tmp_path / "lake"
    done = ingest([str(file), str(ranks[0])], str(lake), 1)
    assert (done.explained, done.problems) == (2, ())
    columns = "calls, duration_ns, start_wall_ns, session_job, lost_events"
    sums, whole = (
        asked(lake, f"SELECT {columns} FROM sessions WHERE path = '{path}'") for path in (file, ranks[0])
    )
    assert sums == whole
    assert sums[0][0] == sum(
        row.count for one in stats(file).processes for row in one.calls if not row.nested
    )
    text = "SELECT gpu_span_ns, idle_lower_ns, class, unkept_ns > 0.9 * duration_ns FROM sessions WHERE path"
    assert asked(lake, f"{text} = '{file}'") == [(None, None, None, True)]
    text = "SELECT c.why, rank FROM communicators c JOIN sessions USING (session_id) WHERE path"
    (told,) = asked(lake, f"{text} = '{file}'")
    assert ("only sums" in told[0], told[1]) == (True, 0)
    text = "SELECT count(*) FROM findings JOIN sessions USING (session_id) WHERE gpu_span_ns IS NULL"
    assert asked(lake, text) == [(0,)]
    assert ingest([str(file)], str(lake), 1).known == 1
