"""A redacted recording says what happened and not whose it was: no original name is in its bytes."""

from __future__ import annotations

import platform
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import pytest

import gputop
from gputop.files.redaction import Redactor
from probes.schema import Kind
from probes.source import CLIENT, FILES, FRAMES, NOTE, PROBLEM, Sample
from replay.writer import SessionWriter
from tests import items
from tests.cli_support import run
from tests.each_recording import FILES as EACH
from tests.typed import typed

ROOT = Path(__file__).resolve().parents[1]

HOST, USER = "zebra-node17", "quentin"
SCRIPT, LIBRARY = (
    "/home/quentin/secretproj/nightjar_train.py",
    "/home/quentin/venv/lib/python3.11/site-packages/torch/x.py",
)
NATIVE = "/home/quentin/build/libnightjar.so"
COMMAND = f"python {SCRIPT} --data /mnt/falconstore/set9 --run otterrun"
STRANGER, CLIENT_NAME, CLIENT_COMMAND = "weaselsim", "badgerd", "badgerd --cfg /etc/badger/b.toml"
CONTAINER = "docker:7f3ab9c01d2e"
ORIGINALS = (
    *(HOST, USER, SCRIPT, NATIVE, COMMAND, STRANGER, CLIENT_NAME, CLIENT_COMMAND, CONTAINER),
    *("secretproj", "nightjar_train", "libnightjar", "falconstore", "otterrun", "badger", "/home/quentin"),
)


def written(path: Path) -> Path:
    """A recording that names all of them, in every kind of sample and in records."""
    header = {
        **items.HEADER,
        "machine": {"host": HOST, "kernel": "6.18", "architecture": "x86_64"},
        "command": COMMAND.split(),
        "cwd": "/home/quentin/secretproj",
    }
    writer = SessionWriter(path, header)
    writer.write(items.apis())
    # told before anybody knows who that is
    writer.write(
        Sample(
            NOTE, items.START, {"text": f"{STRANGER} of {USER} uses {SCRIPT} on {HOST}", "layer": "runtime"}
        )
    )
    writer.write(items.process(10, name="python", command=COMMAND, user=USER, uid=1007, container=CONTAINER))
    writer.write(items.names(items.START, {10: "python", 11: "loader"}))
    writer.write(items.names(items.START, {70: STRANGER}, 70))
    client = {"pid": 80, "name": CLIENT_NAME, "command": CLIENT_COMMAND, "user": USER, "uid": 1007}
    writer.write(Sample(CLIENT, items.START, client))
    stacks = [
        [[NATIVE, 0, "libnightjar.so+0x1139"], [LIBRARY, 7, "forward"], [SCRIPT, 42, "step"]],
        [[SCRIPT, 50, "main"]],
    ]
    writer.write(
        Sample(FRAMES, items.START, {"pid": [10, 10], "stack": [9 << 32, 8 << 32], "frames": stacks})
    )
    writer.write(
        Sample(FILES, items.START, {"pid": [10], "fd": [3], "what": ["file:/mnt/falconstore/set9/a.bin"]})
    )
    writer.write(
        Sample(PROBLEM, items.START, {"text": f"{SCRIPT}: not readable by {USER}, see /var/log/badger/x.log"})
    )
    writer.write(items.event(Kind.NAME, items.START + 5, pid=70, tid=70, comm=STRANGER.encode()))
    for step in range(40):
        at = items.START + step * 5 * items.MS
        writer.write(items.call(at + 10_000, 5_000, stack=9 << 32))
        writer.write(items.call(at + 900_000, 800_000, "cudaDeviceSynchronize", stack=8 << 32))
        writer.write(items.off(at + 4 * items.MS, 3 * items.MS, 0, next_pid=70, next_tid=70))
    writer.write(items.mark(1, items.START + items.SECOND))
    writer.close()
    return path


def texts(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and each chunk of it unpacked, by the reader that docs/session-format.md shows."""
    yield path.read_bytes()
    with path.open("rb") as file:
        for chunk in msgpack.Unpacker(file, strict_map_key=False, max_buffer_size=2**30):
            if isinstance(chunk, dict):
                yield repr(chunk).encode()
            elif isinstance(chunk, list):
                body = chunk[7]
                yield body if chunk[6] == "records" else zlib.decompress(body)


def held(path: Path, names: tuple[str, ...]) -> list[str]:
    """Those of the names that a file holds anywhere."""
    found = [(name, data) for data in texts(path) for name in names if name.encode() in data]
    return sorted({name for name, _ in found})


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
    monkeypatch.setattr(Redactor, "_deep", lambda _self, value, _key="": value)
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
