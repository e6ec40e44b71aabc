"""gputop as a library: what docs/library.md promises, its examples, its notebook, its errors."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgpack  # type: ignore[import-untyped, unused-ignore]
import pytest

import gputop
from gputop.commands.moment import mark_index
from gputop.playback.player import frame_at
from replay.reader import SessionReader
from replay.writer import SessionWriter
from scripts import library_page, notebook
from tests import items

ROOT = Path(__file__).resolve().parents[1]
STORM = ROOT / "recordings" / "storm.msgpack"


def written(path: Path, *, frames: int = 1, **header: object) -> Path:
    """A session file with a mark a second."""
    writer = SessionWriter(path, {**items.HEADER, "machine": {}, **header})
    for number in range(1, frames + 1):
        writer.write(items.mark(number, items.START + number * items.SECOND))
    writer.close()
    return path


# -- what it costs and where it comes from --------------------------------------------------------------


def test_importing_gputop_imports_nothing_and_a_name_of_its_face_is_no_module() -> None:
    script = """
import sys, gputop
assert "numpy" not in sys.modules and "gputop.errors" not in sys.modules
try:
    from gputop.__main__ import main
    sys.argv = ["gputop", "--version"]
    main()
except SystemExit:
    assert "numpy" not in sys.modules
else:
    raise AssertionError("--version went on")
import pkgutil, gputop.analysis.build
from gputop import explain
assert explain.__module__ == "gputop.api.functions", explain
assert {found.name for found in pkgutil.iter_modules(gputop.__path__)}.isdisjoint(gputop.__all__)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'expalin'"):
        gputop.expalin  # noqa: B018
    assert set(gputop.__all__) <= set(dir(gputop))


# -- the page and the notebook --------------------------------------------------------------------------


def test_the_page_shows_what_the_docstrings_say() -> None:
    """``make shown`` writes it again."""
    page = library_page.PAGE.read_text(encoding="utf-8")
    assert library_page.with_names(page) == page


@pytest.mark.slow
def test_the_examples_of_the_page_do_what_they_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = doctest.testfile(str(library_page.PAGE), module_relative=False, encoding="utf-8")
    assert done.attempted > 20
    assert not done.failed


def test_every_function_has_an_example_and_names_its_errors() -> None:
    for name in gputop.__all__:
        if inspect.isfunction(found := getattr(gputop, name)):
            assert ">>> " in (found.__doc__ or ""), name
            assert "Raises:" in (found.__doc__ or ""), name


def test_the_notebook_prints_what_it_shows() -> None:
    """``make shown`` writes it again."""
    text = notebook.NOTEBOOK.read_text(encoding="utf-8")
    assert notebook.with_outputs(text) == text
    assert len(text) < 20_000
    cells = json.loads(text)["cells"]
    assert sum(bool(cell.get("outputs")) for cell in cells) >= 5


# -- what a session says --------------------------------------------------------------------------------


@pytest.mark.slow
def test_frames_are_those_of_the_replay_and_only_those_of_the_stretch() -> None:
    reader = SessionReader(STORM)
    with gputop.open_session(STORM) as session:
        frames = list(session.frames(start_s=1.0, end_s=2.0))
        within = [moment for moment in session.moments_ns if 1e9 <= moment <= 2e9]
        assert [frame.time_ns - session.start_ns for frame in frames] == within
        assert session.frame_at(2.0) == frames[-1] == frame_at(reader, mark_index(reader, "2"))
        assert len(list(session.frames())) == len(session.moments_ns) == len(reader.marks)
        assert session.moments_ns[-1] == session.duration_ns == session.totals().duration_ns
    reader.close()


def test_items_are_everything_in_the_file() -> None:
    with gputop.open_session(STORM) as session:
        records = sum(len(item) for item in session.items() if not hasattr(item, "kind"))
        assert records == session.totals().events


@pytest.mark.slow
def test_an_open_session_answers_as_its_file_does() -> None:
    with gputop.open_session(str(STORM)) as session:
        assert gputop.stats(session) == gputop.stats(STORM) == session.totals()
        assert session.processes == session.totals().processes
        report = gputop.explain(session)
    assert report == gputop.explain(os.fspath(STORM))
    assert gputop.explain(STORM, start_s=1, end_s=2).duration_ns == items.SECOND
    other = gputop.explain(STORM, pids=[1])
    assert (other.findings, other.idle) == ((), report.idle)


def test_results_cannot_be_changed() -> None:
    totals = gputop.stats(STORM)
    with pytest.raises(dataclasses.FrozenInstanceError):
        totals.events = 0  # type: ignore[misc]
    with gputop.open_session(STORM) as session, pytest.raises(TypeError):
        session.header["gputop"] = "x"  # type: ignore[index]


def test_what_is_damaged_is_reported_by_the_session_its_frames_and_its_totals(tmp_path: Path) -> None:
    path = tmp_path / "torn.msgpack"
    path.write_bytes(STORM.read_bytes()[:500_000])
    with gputop.open_session(path) as session:
        (problem,) = session.problems
        assert "incomplete" in problem
        assert session.totals().problems[0] == problem
        assert session.frame_at(0).problems[0] == problem
        assert all(frame.problems[0] == problem for frame in session.frames())


# -- errors ---------------------------------------------------------------------------------------------


def newer(path: Path) -> Path:
    path.write_bytes(msgpack.packb({"format": "gputop.session", "major": 2, "minor": 0}))
    return path


def text(path: Path) -> Path:
    path.write_text("these are no records")
    return path


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda path: path, gputop.SessionNotFoundError, "there is no file"),
        (lambda path: path.parent, gputop.SessionUnreadableError, "a folder without recordings"),
        (text, gputop.SessionDamagedError, "a text file, not a gputop recording"),
        (newer, gputop.SessionTooNewError, "upgrade gputop"),
        (lambda path: written(path, frames=0), gputop.SessionDamagedError, "no complete frame"),
        (lambda path: written(path, start_ns={}), gputop.SessionDamagedError, "does not understand"),
    ],
    ids=["missing", "folder", "text", "newer", "no frame", "other shape"],
)
def test_a_file_that_cannot_be_opened_says_so_by_its_kind_and_leaves_nothing_open(
    make: Callable[[Path], Path], kind: type[gputop.GputopError], words: str, tmp_path: Path
) -> None:
    path = make(tmp_path / "session")
    before = os.listdir("/proc/self/fd")
    for ask in (gputop.open_session, gputop.stats, gputop.explain, lambda file: gputop.diff(file, STORM)):
        with pytest.raises(kind, match=words):
            ask(path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_what_was_recorded_without_ebpf_cannot_be_explained(tmp_path: Path) -> None:
    path = written(tmp_path / "blind", calls_observed=False)
    assert gputop.stats(path).calls_observed is False
    with pytest.raises(gputop.NoCallsError, match="record it as root"):
        gputop.explain(path)
    with pytest.raises(gputop.NoCallsError, match="record it as root"):
        gputop.diff(STORM, path)


def test_moments_outside_of_the_recording_are_refused(tmp_path: Path) -> None:
    with gputop.open_session(written(tmp_path / "short", frames=2)) as session:
        assert session.frame_at(2.0).number == 2
        for moment in (-0.1, 2.1):
            with pytest.raises(gputop.OutsideSessionError, match=r"2\.0 s long"):
                session.frame_at(moment)
    with pytest.raises(gputop.OutsideSessionError, match="nothing from 50 s"):
        gputop.explain(STORM, start_s=50)


def test_a_closed_session_says_so() -> None:
    session = gputop.open_session(STORM)
    session.close()
    session.close()
    for ask in (
        session.totals,
        session.items,
        lambda: next(session.frames()),
        lambda: session.frame_at(1),
        lambda: gputop.explain(session),
    ):
        with pytest.raises(gputop.SessionClosedError, match="open it again"):
            ask()


def test_every_error_is_one_of_gputops_own() -> None:
    errors = [found for name in gputop.__all__ if name.endswith("Error") for found in [getattr(gputop, name)]]
    assert len(errors) == 8
    assert all(issubclass(error, gputop.GputopError) for error in errors)


def test_only_results_become_json() -> None:
    with pytest.raises(TypeError, match="a str is no result"):
        gputop.to_json("report")  # type: ignore[call-overload]
