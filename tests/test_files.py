"""Session files as files: what inspect, verify, repair and cut say and write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import gputop
from gputop.analysis.build import explain as build
from gputop.api.recording_evidence import evidence_of
from gputop.api.session import open_session
from gputop.files.excerpt import cut
from gputop.files.inspection import inspect
from gputop.files.whole import repair, verify
from probes.source import CARRIED, MARK, Sample
from replay.coding.file_format import MARKER
from replay.reader import SessionReader
from replay.segments import SegmentLimits, SegmentWriter
from replay.size_breakdown import census
from replay.writer import SessionWriter
from tests import items, session_data
from tests.each_recording import FILES as EACH
from tests.json_page import assert_documented
from tests.typed import typed

ROOT = Path(__file__).resolve().parents[1]
RECORDINGS = sorted((ROOT / "recordings").glob("*.msgpack"))
STORM, WORKERS, DATALOADER = (
    ROOT / "recordings" / f"{name}.msgpack" for name in ("storm", "dataloader-workers", "dataloader")
)


def damaged(path: Path) -> Path:
    """A recording with a hole in its middle and without its end."""
    data = bytearray(WORKERS.read_bytes()[:-20_000])
    data[90_000:90_100] = bytes(100)
    path.write_bytes(data)
    return path


def kept(path: Path) -> list[bytes | Sample]:
    """What is intact in a file."""
    return session_data.flat(session_data.read(path))


# -- inspect --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_what_is_reported_of_a_file_is_what_is_in_it(file: Path) -> None:
    with gputop.open_session(file) as session:
        found = inspect(session)
        totals = session.totals()
    assert found["duration_ns"] == totals.duration_ns
    assert found["start_realtime_ns"] == totals.start_wall_ns
    assert found["lost"]["events"] == totals.lost.events
    assert found["sizes"]["size_bytes"] == file.stat().st_size
    sizes = {kind["kind"]: kind for kind in found["sizes"]["kinds"]}
    assert sizes["records"]["items"] == totals.events
    assert sizes["mark"]["items"] == found["frames"]
    assert (
        sum(kind["size_bytes"] for kind in sizes.values()) + found["sizes"]["other_bytes"]
        == file.stat().st_size
    )
    assert found["closed"]
    assert found["gaps"] == found["problems"] == []
    assert found["gpus"][0]["name"] == "SimGPU 80GB"


def test_the_document_is_as_its_page_says(capfd: pytest.CaptureFixture[str]) -> None:
    assert typed("inspect", "--json", str(STORM)) == 0
    assert_documented(json.loads(capfd.readouterr().out))


def test_a_stretch_without_marks_is_a_gap_and_losses_are_those_since_the_start(tmp_path: Path) -> None:
    path = tmp_path / "gap.msgpack"
    writer = SessionWriter(path, {**items.HEADER, "cut": {"lost": {"calls": 5}}})
    for number, second in enumerate((1, 2, 3, 9, 10), 1):
        writer.write(items.mark(number, items.START + second * items.SECOND, calls=7))
    writer.close()
    with gputop.open_session(path) as session:
        found = inspect(session)
    assert found["gaps"] == [{"start_ns": 3 * items.SECOND, "end_ns": 9 * items.SECOND}]
    assert found["lost"] == {"events": 2, "by_kind": {"calls": 2}}


def test_names_in_a_header_cannot_move_the_cursor(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "names.msgpack"
    writer = SessionWriter(path, {**items.HEADER, "machine": {"host": "a\x1b[2Jb\u202e"}, "driver": "\r\n"})
    writer.write(items.mark(1, items.START + items.SECOND))
    writer.close()
    assert typed("inspect", str(path)) == 0
    shown = capfd.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\r" not in shown


def test_a_folder_of_segments_is_inspected_as_one_recording(tmp_path: Path) -> None:
    reader = SessionReader(STORM)
    header, told = dict(reader.header), list(reader.items())
    reader.close()
    now = [0]
    folder = tmp_path / "cut"
    writer = SegmentWriter(str(folder), header, SegmentLimits(span_ns=4), clock=lambda: now[0])
    for item in told:
        now[0] += isinstance(item, Sample) and item.kind == MARK
        writer.write(item)
    writer.close()
    files = sorted(folder.iterdir())
    assert len(files) > 2
    found, parts = census(str(folder)), [census(str(file)) for file in files]
    assert found.size_bytes == sum(file.stat().st_size for file in files)
    records = sum(len(item) for item in told if not isinstance(item, Sample))
    assert sum(kind.items for kind in found.kinds if kind.kind == "records") == records
    assert found.closed
    assert found.other_bytes == sum(part.other_bytes for part in parts)
    with open_session(folder) as session:
        assert inspect(session)["sizes"]["size_bytes"] == found.size_bytes


def test_a_census_needs_no_index(tmp_path: Path) -> None:
    whole = census(str(STORM))
    path = tmp_path / "unclosed.msgpack"
    path.write_bytes(STORM.read_bytes()[:-16])
    torn = census(str(path))
    assert whole.closed
    assert not torn.closed
    assert set(torn.kinds) == {kind for kind in whole.kinds if kind.kind != "index"}


# -- verify and repair ----------------------------------------------------------------------------------


def test_the_status_says_whether_a_file_is_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert typed("verify", str(STORM)) == 0
    assert "intact" in capfd.readouterr().out
    assert typed("verify", str(damaged(tmp_path / "damaged.msgpack"))) == 3
    shown = capfd.readouterr().out
    assert "damaged" in shown
    assert "gputop repair" in shown
    (tmp_path / "no.msgpack").write_bytes(b"no session")
    assert typed("verify", str(tmp_path / "no.msgpack")) == 1


def test_a_flipped_bit_anywhere_in_a_chunk_is_found(tmp_path: Path) -> None:
    path = session_data.write(tmp_path / "small.msgpack", session_data.session(session_data.realistic(300)))
    data = path.read_bytes()
    start = data.find(MARKER, data.find(MARKER) + 1)  # of the two headers one is enough
    for place in range(start, len(data), 97):
        flipped = bytearray(data)
        flipped[place] ^= 4
        path.write_bytes(flipped)
        with gputop.open_session(path) as session:
            assert verify(session).problems, place


def test_a_repaired_file_is_whole_holds_all_that_is_intact_and_shows_what_is_missing(tmp_path: Path) -> None:
    broken, mended = damaged(tmp_path / "broken.msgpack"), tmp_path / "mended.msgpack"
    with gputop.open_session(broken) as session:
        found = repair(session, str(mended))
        before = gputop.stats(session)
    assert len(found.problems) == 2
    with gputop.open_session(mended) as session:
        again = verify(session)
        after = gputop.stats(session)
    assert not again.problems
    assert (again.frames, again.records) == (found.frames, found.records)
    assert after == before  # the problems, too
    assert [one for one in kept(mended) if getattr(one, "kind", "") != "problem"] == kept(broken)


def test_nothing_that_is_there_is_written_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = damaged(tmp_path / "broken.msgpack")
    held = broken.read_bytes()
    for words in (["repair", str(broken), str(broken)], ["cut", str(broken), str(broken), "--to", "1"]):
        assert typed(*words) == 1
        assert "exists already" in capfd.readouterr().err
    assert broken.read_bytes() == held


def test_an_output_that_cannot_be_finished_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "full.msgpack"
    with gputop.open_session(STORM) as session:
        session.close()
        with pytest.raises(gputop.SessionClosedError):
            repair(session, str(path))
    assert not path.exists()
    assert typed("repair", str(STORM), str(tmp_path / "no" / "folder.msgpack")) == 1


# -- cut ------------------------------------------------------------------------------------------------


def without_what_is_carried(path: Path) -> Path:
    """The same file, as if only its own records were known."""
    bare = path.with_stem("bare")
    reader = SessionReader(path)
    writer = SessionWriter(bare, reader.header)
    for item in reader.items():
        if not (isinstance(item, Sample) and item.kind == CARRIED):
            writer.write(item)
    writer.close()
    reader.close()
    return bare


def losses(path: Path, stretch: tuple[int, int], *, proved: bool = False) -> dict[str, int]:
    """Idle time and losses by cause for which there are proofs, in a stretch of CLOCK_MONOTONIC.

    Args:
        path: Of a file.
        stretch: From when to when.
        proved: Only findings that need no estimate; whether there are others beside depends on estimates.
    """
    with gputop.open_session(path) as session:
        report = build(evidence_of(session), None, stretch)
    found = {one.cause: one.loss.lower for one in report.findings if one.level == "proved" or not proved}
    return {"idle": report.idle.lower} | found


@pytest.mark.slow
@pytest.mark.parametrize("file", EACH)
@pytest.mark.parametrize(("low", "high"), [(1.0, 2.0), (0.4, 1.5), (0.0, 1.0)])
@pytest.mark.mainly("0.4-1.5-storm", "1.0-2.0-healthy", "0.0-1.0-numpy-sync", "0.4-1.5-dataloader-workers")
def test_a_part_proves_what_the_whole_proves_of_it(
    file: Path, low: float, high: float, tmp_path: Path
) -> None:
    path = tmp_path / "part.msgpack"
    with gputop.open_session(file) as session:
        part = cut(session, str(path), low, high)
        stretch = (session.start_ns + int(low * 1e9), session.start_ns + int(high * 1e9))
    assert part.start_ns <= low * 1e9 < high * 1e9 <= part.end_ns
    assert losses(path, stretch).items() >= losses(file, stretch, proved=True).items()


@pytest.mark.parametrize("name", ["dataloader", "dataloader-workers", "numpy-sync"])
def test_what_is_carried_over_is_what_makes_it_so(name: str, tmp_path: Path) -> None:
    path = tmp_path / "part.msgpack"
    with gputop.open_session(ROOT / "recordings" / f"{name}.msgpack") as session:
        part = cut(session, str(path), 1.0, 2.0)
        stretch = (session.start_ns + part.start_ns, session.start_ns + part.end_ns)
    assert losses(without_what_is_carried(path), stretch)["idle"] < losses(path, stretch)["idle"]


@pytest.mark.slow
def test_a_part_counts_its_own_calls_only_and_its_frames_are_those_of_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "part.msgpack"
    with gputop.open_session(STORM) as session:
        part = cut(session, str(path), 1.0, 2.0)
        start, end = (session.start_ns + moment for moment in (part.start_ns, part.end_ns))
        inside = sum(
            int(((item["t_end"] > start) & (item["t_end"] <= end)).sum())
            for item in session.items()
            if not isinstance(item, Sample)
        )
        clocks = {frame.time_ns: frame.wall_ns for frame in session.frames()}
    with gputop.open_session(path) as session:
        assert (session.start_ns, session.duration_ns) == (start, end - start)
        assert session.totals().lost.events == 0
        assert abs(session.totals().events - inside) < 20  # a record lies in the tick in which it was read
        assert all(clocks[frame.time_ns] == frame.wall_ns for frame in session.frames())
        assert not session.problems
        assert {row.name for row in session.processes} == {"pt_data_worker", "python"}


def test_a_part_of_a_part_still_proves_it(tmp_path: Path) -> None:
    one, two = tmp_path / "one.msgpack", tmp_path / "two.msgpack"
    with gputop.open_session(DATALOADER) as session:
        cut(session, str(one), 0.5, 2.0)
        stretch = (session.start_ns + 1_250_000_000, session.start_ns + 1_750_000_000)
    with gputop.open_session(one) as session:
        offset = stretch[0] - session.start_ns
        cut(session, str(two), offset / 1e9, offset / 1e9 + 0.5)
    assert losses(two, stretch).items() >= losses(DATALOADER, stretch, proved=True).items()


def test_a_stretch_without_frames_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--from", "90"], ["--from", "2", "--to", "1"], ["--from", "1", "--to", "1"]):
        assert typed("cut", str(STORM), str(tmp_path / "x.msgpack"), *words) == 2
        assert "there is nothing from" in capfd.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_carried_sample_made_to_fill_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hostile.msgpack"
    writer = SessionWriter(path, items.HEADER)
    writer.write(Sample(CARRIED, items.START, {"complete": [], "columns": {"kind": bytes(1 << 20)}}))
    writer.write(items.mark(1, items.START + items.SECOND))
    writer.close()
    with pytest.raises(gputop.SessionDamagedError, match="calls from before"):
        gputop.explain(path)


@pytest.mark.parametrize("name", ["cut", "redact", "repair"])
def test_the_new_file_is_the_second_word_or_named_as_of_other_commands(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / f"{number}.msgpack") for number in range(4)]
    flags = ["--from", "0.5"] if name == "cut" else ["-v"]
    for words in ([paths[0]], [*flags, paths[1]], ["-o", paths[2]], ["--output", paths[3], *flags]):
        assert typed(name, str(DATALOADER), *words) == 0, capfd.readouterr().err
    assert all(Path(path).exists() for path in paths)
    for words, said in (([], "no name"), ([paths[0], "-o", paths[1]], "named twice")):
        capfd.readouterr()
        assert typed(name, str(DATALOADER), *words) == 2
        assert said in capfd.readouterr().err


@pytest.mark.parametrize("name", ["cut", "redact", "repair", "merge"])
@pytest.mark.slow
@pytest.mark.mainly("cut", "repair")
def test_a_copy_of_a_damaged_file_reports_what_is_missing(name: str, tmp_path: Path) -> None:
    """The copy is whole itself; so nobody would notice."""
    broken, copy = damaged(tmp_path / "broken.msgpack"), tmp_path / "copy.msgpack"
    others = [str(DATALOADER)] if name == "merge" else []
    assert typed(name, str(broken), *others, "-o", str(copy)) == 0
    with gputop.open_session(broken) as session:
        damage = verify(session).problems
    assert len(damage) == 2
    with gputop.open_session(copy) as session:
        assert not verify(session).problems
        told, notes = session.totals().problems, gputop.explain(session).notes
        shown = [*session.frames()][-1].problems
    for text in damage:
        assert any(text in one for one in told)
        assert any(text in one for one in notes)
        assert any(text in one for one in shown)


def test_an_explanation_shows_what_of_its_file_is_damaged(tmp_path: Path) -> None:
    with gputop.open_session(damaged(tmp_path / "broken.msgpack")) as session:
        notes = gputop.explain(session).notes
        assert set(session.problems) <= set(notes)
    assert not any("damaged" in note or "incomplete" in note for note in gputop.explain(WORKERS).notes)
