"""A redacted recording says what happened and not whose it was: no original name is in its bytes."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.files.redaction import Redactor
from probes.source import Sample
from tests.cli_support import run
from tests.each_recording import FILES as EACH
from tests.named_recording import ORIGINALS, held, written
from tests.typed import typed

ROOT = Path(__file__).resolve().parents[1]


def figures(document: Any) -> Any:
    """A document without its texts."""
    if isinstance(document, dict):
        return {
            key: figures(value) for key, value in document.items() if key not in ("file", "frames", "line")
        }
    if isinstance(document, list):
        return [figures(value) for value in document]
    return None if isinstance(document, str) else document


def test_no_original_name_is_anywhere_in_the_bytes_also_unpacked(tmp_path: Path) -> None:
    source, copy = written(tmp_path / "own.msgpack"), tmp_path / "copy.msgpack"
    assert held(source, ORIGINALS) == sorted(ORIGINALS)
    assert typed("redact", str(source), str(copy)) == 0
    assert held(copy, ORIGINALS) == []
    assert typed("verify", str(copy)) == 0


def test_figures_calls_functions_and_watched_names_stay(tmp_path: Path) -> None:
    source, copy = written(tmp_path / "own.msgpack"), tmp_path / "copy.msgpack"
    assert typed("redact", str(source), str(copy)) == 0
    for ask in (gputop.stats, gputop.explain):
        before, after = (gputop.to_json(ask(path)) for path in (source, copy))
        assert figures(before) == figures(after)
    totals = gputop.stats(copy)
    (process,) = totals.processes
    assert (process.name, process.command) == ("python", "command-1")
    assert {row.line.function for row in process.lines} == {"step", "main"}
    assert {thread.name for thread in process.threads} == {"python"}


def test_a_name_has_one_pseudonym_wherever_it_stands(tmp_path: Path) -> None:
    source, copy = written(tmp_path / "own.msgpack"), tmp_path / "copy.msgpack"
    assert typed("redact", str(source), str(copy)) == 0
    with gputop.open_session(copy) as session:
        samples = [item for item in session.items() if isinstance(item, Sample)]
        machine = session.header["machine"]
    by_kind = {
        kind: [one.data for one in samples if one.kind == kind] for kind in {one.kind for one in samples}
    }
    user, host = by_kind["process"][0]["user"], machine["host"]
    assert (user, host) == ("user-1", "host-1")
    assert by_kind["client"][0]["user"] == user
    native, library, script = (frame[0] for frame in by_kind["frames"][0]["frames"][0])
    assert library.endswith("/lib/python3.11/site-packages/torch/x.py")
    assert re.fullmatch(r"/folder-\d+/folder-\d+/folder-\d+/file-\d+\.py", script)
    assert native.endswith(".so")
    (stranger,), file = by_kind["names"][1]["name"], script.rpartition("/")[2]
    assert by_kind["note"][0]["text"] == f"{stranger} of {user} uses {file} on {host}"  # no folders
    assert by_kind["problem"][0]["text"].startswith(f"{file}: not readable by {user}")
    function = by_kind["frames"][0]["frames"][0][0][2]
    assert function == f"{native.rpartition('/')[2]}+0x1139"


@pytest.mark.parametrize("recording", EACH)
@pytest.mark.slow
def test_a_recording_explains_as_before(recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.msgpack"
    assert typed("redact", str(recording), str(copy)) == 0
    before, after = gputop.explain(recording), gputop.explain(copy)
    assert figures(gputop.to_json(before)) == figures(gputop.to_json(after))
    assert [(one.cause, one.level, one.title) for one in before.findings] == [
        (one.cause, one.level, one.title) for one in after.findings
    ]


def test_a_name_that_is_left_is_an_error_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The copy is read again: what redaction forgets is not sent to a stranger."""
    monkeypatch.setattr(Redactor, "deep", lambda _self, value, _key="": value)
    source, copy = written(tmp_path / "own.msgpack"), tmp_path / "copy.msgpack"
    assert typed("redact", str(source), str(copy)) == 1
    assert "still names something" in capfd.readouterr().err
    assert not copy.exists()


@pytest.mark.ebpf
def test_what_is_recorded_redacted_never_names_this_machine_its_users_or_the_program(tmp_path: Path) -> None:
    folder = tmp_path / "ospreyfolder"
    folder.mkdir()
    program = folder / "kestrelprogram.py"
    program.write_text(
        "from gputop.demo.__main__ import main\nimport sys\nsys.argv = ['x', 'healthy', '1']\nmain()\n"
    )
    path = tmp_path / "out.msgpack"
    words = (
        "--simgpu",
        "--lines",
        "all",
        "--redact",
        "-o",
        str(path),
        "--",
        sys.executable,
        str(program),
        "--tag",
        "heronword",
    )
    done = run("record", *words, env={"PYTHONPATH": str(ROOT)})
    assert path.exists(), done.stderr
    assert held(path, ("ospreyfolder", "kestrelprogram", "heronword", str(tmp_path))) == []
    with gputop.open_session(path) as session:
        assert session.header["machine"]["host"] == "host-1" != platform.node()
    totals = gputop.stats(path)
    assert any(call.api == "cudaLaunchKernel" for process in totals.processes for call in process.calls)
