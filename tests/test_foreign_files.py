"""Files that are no recordings: every command says what they are and which command takes them."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import inside, made_traces

RECORDINGS = Path(__file__).parents[1] / "recordings"
_CHROME = {"traceEvents": [{"ph": "X", "cat": "v8", "name": "f", "ts": 1, "dur": 2, "pid": 1, "tid": 1}] * 3}


def _database(path: Path) -> None:
    sqlite3.connect(path).execute("create table users (name)")


def _bytes(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def _lake(path: Path) -> None:
    (path / "pieces").mkdir(parents=True)
    (path / "pieces" / "lake").touch()


def _trace(kind: str, folder: Path) -> Path:
    """A trace of another tool that gputop imports."""
    if kind == "nsys":
        return made_traces.nsys(folder / "run.sqlite")
    if kind == "ingero":
        return made_traces.ingero(folder / "run.db")
    return made_traces.kineto(folder / kind)


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "chrome.json": (_bytes(json.dumps(_CHROME).encode()), "a Chrome trace"),
    "list.json": (_bytes(json.dumps(_CHROME["traceEvents"]).encode()), "a Chrome trace"),
    "other.json": (_bytes(b'{"a": 1}'), "a JSON file"),
    "answer.json": (_bytes(b'{"schema": "gputop.explain/4", "x": 1}'), "the JSON of gputop explain"),
    "users.db": (_database, "an SQLite database with table users"),
    "torn.db": (_bytes(b"SQLite format 3\0" + b"a" * 90), "a damaged SQLite database"),
    "train.py": (
        _bytes(b"import torch\n"),
        "a Python program, not a gputop recording: to start it: gputop -- python",
    ),
    "notes.txt": (_bytes("h\u00f6llo\n".encode()), "not a gputop"),
    "page.html": (_bytes(b"<!DOCTYPE html>"), "an HTML page"),
    "packed.msgpack.gz": (
        _bytes(gzip.compress((RECORDINGS / "storm.msgpack").read_bytes()[:9000])),
        "a gzip file, not a gputop recording: unpack it first: gunzip",
    ),
    "packed.xz": (_bytes(lzma.compress(b"x")), "a xz file"),
    "objects.pkl": (_bytes(pickle.dumps([1])), "a Python pickle"),
    "job.nsys-rep": (_bytes(b"NSYS"), "an Nsight Systems report, not a gputop recording: first nsys export"),
    "noise": (_bytes(bytes(range(256))), "not a gputop session"),
    "lake": (_lake, "a lake of gputop fleet, not a gputop recording: gputop fleet overview"),
    "folder": (lambda path: path.mkdir(), "a folder without recordings"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_program_is_named(name: str, tmp_path: Path) -> None:
    make, word = FOREIGN[name]
    path = tmp_path / name
    make(path)
    done = inside.run("explain", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert word in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["run.pt.trace.json", "run.json.gz", "nsys", "ingero"])
def test_a_trace_names_the_import_that_works(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = _trace(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    said = inside.run("explain", trace.name).stderr
    command = said.split("gputop import ")[1].split()
    assert inside.run("import", *command).returncode == 0
    assert inside.run("stats", command[-1]).returncode == 0


_OUT = ("-o", "out")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("explain",),
        ("replay", "--once"),
        ("stats",),
        ("stream", "--jsonl"),
        ("report", *_OUT),
        ("export", "--to", "csv", *_OUT),
        ("sql", "select 1"),
        ("inspect",),
        ("verify",),
        ("repair", *_OUT),
        ("cut", *_OUT),
        ("merge", *_OUT),
        ("redact", *_OUT),
        ("diff", str(RECORDINGS / "storm.msgpack")),
        ("fleet", "ingest", "--into", "lake"),
    ],
    ids=" ".join,
)
def test_every_command_that_takes_a_recording_names_the_import(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = _trace("run.json", tmp_path)
    monkeypatch.chdir(tmp_path)
    done = inside.run(*words, trace.name)
    assert done.returncode == 1
    assert f"a torch.profiler trace, not a gputop recording: gputop import {trace.name} -o" in done.stderr
    assert not os.path.exists("out")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("nosuch.msgpack", "gputop: there is no file nosuch.msgpack: check the name\n"),
        ("sesion.msgpack", "there is no file sesion.msgpack: check the name; did you mean session.msgpack?"),
        ("./nosuch", "there is no file ./nosuch"),
        ("gone/run.msgpack", "there is no file gone/run.msgpack"),
        ("explian", "did you mean gputop explain?"),
        ("sh", "to start a program: gputop -- sh"),
        ("4242", "to watch a process: gputop --pid 4242"),
        ("frobnicate", "gputop --help"),
    ],
)
def test_a_first_word_that_is_no_file_says_so_first(
    typed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("session.msgpack").touch()
    done = inside.run(typed)
    assert said in done.stderr
    assert done.stderr.startswith("gputop: there is no file ")
    assert len(done.stderr) < 200  # no list of all commands
    assert done.returncode == (1 if "check the name" in done.stderr else 2)


def test_what_cannot_be_imported_names_what_it_holds(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    for name, word in (
        ("chrome.json", "it holds category v8 (3)"),
        ("other.json", "JSON with key a"),
        ("users.db", "with table users"),
        ("train.py", "a Python program"),
        ("job.nsys-rep", "first nsys export"),
        ("packed.msgpack.gz", "gunzip"),
    ):
        FOREIGN[name][0](tmp_path / name)
        done = inside.run("import", str(tmp_path / name), "-o", out)
        assert (done.returncode, word in done.stderr) == (1, True), done.stderr
    done = inside.run("import", str(RECORDINGS / "storm.msgpack"), "-o", out)
    assert "is a gputop recording already" in done.stderr
    assert not os.path.exists(out)
