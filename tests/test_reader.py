"""Files of others are read by a child, within a time, and what it says is what would be read here."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gputop.simgpu import ensure_built
from probes.code import elf, libraries, parsing, reader_child
from probes.code.libraries import Target
from probes.files import file_reader, maps, reader_protocol, untrusted_files
from probes.proc.procfs import descendants
from tests.hanging_files import ANSWERS, WHEN_OPENED, WHEN_READ

RUNTIME = "libcudart.so.12"
PATIENCE_S = file_reader.BUDGET_S + 20  # a busy machine may be late, but not for ever


def runtime() -> Target:
    found = libraries.target(ensure_built() / RUNTIME)
    assert found is not None
    return found


def refused(path: Path | str, identity: untrusted_files.Identity) -> tuple[str, float]:
    """Why a file is not opened, and how long that took."""
    began = time.monotonic()
    with pytest.raises(OSError, match="Errno") as told:
        untrusted_files.opened(path, identity).close()
    assert told.value.errno == errno.ETIMEDOUT
    return str(told.value.strerror), time.monotonic() - began


FILES = 30  # of a process that has run other tests there are hundreds


def test_the_child_says_what_would_be_read_here(child: file_reader.Reader) -> None:
    target = runtime()
    own = [mapping for mapping in maps.executable(os.getpid()) if mapping.path.startswith("/")]
    pythons = [one for one in own if os.path.basename(one.path).startswith(("python", "libpython"))]
    own = pythons + own[:FILES]
    program = libraries.program(Path(sys.executable))

    def everything() -> list[object]:
        found: list[object] = [libraries.file_of(mapping) for mapping in own]
        found += [libraries.executable(os.getpid()), program and parsing.linked_runtime(program)]
        with untrusted_files.opened(target.path, target.identity) as file:
            found += [file.identity, parsing.probes_of(target, file)]
            found.append(parsing.functions_in(file, ["cudaMalloc", "none", "cudaFree"], RUNTIME))
        for mapping in own:
            with untrusted_files.opened(mapping.path) as file:
                found.append(parsing.interpreter_in(file, mapping.path))
        for mapping in pythons:
            place = libraries.file_of(mapping)
            assert place is not None
            with parsing.interpreter_at(*place, mapping.path) as (file, interpreter):
                found += [file.identity, interpreter]
        return found

    assert pythons, "Python's own file is one of them"
    by_child = everything()
    file_reader.stop()
    assert by_child == everything()
    assert not child.problems


def test_names_and_an_interpreter_take_one_question_each(
    child: file_reader.Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question starts a process, for which the start of gputop waits."""
    jobs: list[str] = []
    request = file_reader.Reader.request

    def counted(reader: file_reader.Reader, job: str, *words: Any, **more: Any) -> tuple[Any, int]:
        jobs.append(job)
        return request(reader, job, *words, **more)

    monkeypatch.setattr(file_reader.Reader, "request", counted)
    target, python = runtime(), Path(sys.executable).resolve()
    with untrusted_files.opened(target.path, target.identity) as file:
        parsing.functions_in(file, ["cudaMalloc", "cudaFree"], RUNTIME)
    facts = python.stat()
    with parsing.interpreter_at(python, (facts.st_dev, facts.st_ino), str(python)):
        pass
    assert jobs == ["open ", "begins", "open interpreter"]


def test_what_is_no_library_and_what_is_another_file_is_reported_as_here(
    child: file_reader.Reader, tmp_path: Path
) -> None:
    path = tmp_path / RUNTIME
    path.write_text("no library")
    facts = path.stat()
    file = untrusted_files.opened(path, (facts.st_dev, facts.st_ino))
    with file, pytest.raises(elf.ElfError, match="not a 64-bit"):
        parsing.probes_of(runtime(), file)
    with pytest.raises(OSError, match="another file") as other:
        untrusted_files.opened(path, (facts.st_dev, facts.st_ino + 1))
    assert other.value.errno == errno.ESTALE
    with pytest.raises(FileNotFoundError):
        untrusted_files.opened(tmp_path / "none", (1, 1))
    assert not child.problems


def test_a_file_that_does_not_open_is_given_up_reported_once_and_not_tried_again(
    child: file_reader.Reader, hanging: Path
) -> None:
    device = hanging.stat().st_dev
    why, took = refused(hanging / WHEN_OPENED, (device, 7))
    assert "could not be read within 2 s" in why
    assert took < PATIENCE_S
    again_s = [refused(hanging / WHEN_OPENED, (device, 7))[1] for _ in range(3)]
    assert min(again_s) < file_reader.BUDGET_S / 2, "it is known now"
    assert [WHEN_OPENED in text and "left out" in text for text in child.problems] == [True]
    with untrusted_files.opened(runtime().path, runtime().identity) as file:
        assert parsing.probes_of(runtime(), file)[0], "others are read all the same"


def test_a_file_that_opens_and_is_never_read_to_its_end_is_given_up(
    child: file_reader.Reader, hanging: Path
) -> None:
    identities = {
        name: (lambda s: (s.st_dev, s.st_ino))(os.stat(hanging / name)) for name in (ANSWERS, WHEN_READ)
    }
    with untrusted_files.opened(hanging / ANSWERS, identities[ANSWERS]) as file:
        expected = parsing.probes_of(runtime(), file)
    assert expected[0], "a file system in user space that answers is one like any other"
    began = time.monotonic()
    file = untrusted_files.opened(hanging / WHEN_READ, identities[WHEN_READ])
    with file, pytest.raises(OSError, match="could not be read within 2 s"):
        parsing.probes_of(runtime(), file)
    assert time.monotonic() - began < PATIENCE_S
    program = Target(hanging / WHEN_READ, "it", identities[WHEN_READ], "runtime", 0)
    assert parsing.linked_runtime(program) is None, "not known for now"


def test_after_three_files_of_a_file_system_none_of_its_files_keeps_anybody_waiting(
    child: file_reader.Reader, hanging: Path
) -> None:
    device = hanging.stat().st_dev
    for inode in range(3):
        child.abandon((device, inode), file_reader.UNKNOWN, "a library", "it could not be read", hangs=True)
    assert min(refused(hanging / ANSWERS, (device, 2))[1] for _ in range(3)) < file_reader.BUDGET_S / 2
    assert "could not be read" in refused(hanging / ANSWERS, (device, 99))[0]
    assert "hangs-when" not in child.problems[-1]
    assert f"{hanging / ANSWERS} is left out for now: other files of its owner" in child.problems[-1]


SLOW_ANSWER = """
import socket, threading, time
from probes.files.reader_protocol import Patience, received

ours, theirs = socket.socketpair()

def answer():
    for _ in range(5):
        time.sleep(0.1)
    theirs.send(b"it")
    theirs.close()

threading.Thread(target=answer).start()
print("asked", flush=True)
print(received(ours, Patience(1.5))[0].decode())
"""


def test_a_machine_that_stands_still_makes_no_answer_late() -> None:
    """Everybody is stopped for longer than an answer may take, and it comes half a second of work later."""
    with subprocess.Popen([sys.executable, "-c", SLOW_ANSWER], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "asked\n"
        program.send_signal(signal.SIGSTOP)
        time.sleep(2)
        program.send_signal(signal.SIGCONT)
        assert program.stdout.readline() == "it\n"


def test_who_answers_drop_by_drop_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    over = threading.Event()

    def drop() -> None:
        while not over.wait(0.02):
            theirs.send(b".")

    with ours, theirs:
        dropping = threading.Thread(target=drop)
        dropping.start()
        try:
            with pytest.raises(TimeoutError):
                reader_protocol.received(ours, reader_protocol.Patience(0.5))
        finally:
            over.set()
            dropping.join()


def test_a_question_whose_process_ends_without_an_answer_is_not_asked_again(
    child: file_reader.Reader,
) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="did not end"):
            child.request("no such job", [], (1, 2), "a library")
    assert len(child.problems) == 1


def test_when_the_child_itself_is_killed_there_is_another_one(child: file_reader.Reader) -> None:
    before = child.pid
    os.kill(before, signal.SIGKILL)
    with untrusted_files.opened(runtime().path, runtime().identity) as file:
        assert parsing.probes_of(runtime(), file)[0]
    assert child.pid != before


def ended(pid: int) -> bool:
    until = time.monotonic() + PATIENCE_S
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < until
        time.sleep(0.02)
    return True


def test_a_child_without_questions_ends_and_the_next_question_starts_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_reader, "IDLE_S", 0.3)
    reader = file_reader.start(reader_child)
    file_reader.end_idle()
    try:
        took = []
        for _ in range(4):  # a fork, and interpreters that are missed at once
            began = time.monotonic()
            assert ended(reader.pid)
            took.append(time.monotonic() - began)
            with untrusted_files.opened(runtime().path, runtime().identity) as file:
                assert parsing.probes_of(runtime(), file)[0]
            assert not reader.problems
        assert took[3] > 1, "twice as long each time"
    finally:
        file_reader.stop()


def test_a_conversation_without_questions_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_child, "TALK_IDLE_S", 0.5)  # of the fork
    reader = file_reader.start(reader_child)
    try:
        path, identity = runtime().path, runtime().identity
        with untrusted_files.opened(path, identity) as file:
            talk = reader.converse("functions", [], identity, str(path), file.descriptor)
            assert talk.request([]) == []
            (worker,) = descendants((reader.pid,))
            assert ended(worker)
            with pytest.raises(file_reader.EndedError):
                talk.request([])
            talk.close()
    finally:
        file_reader.stop()


def test_the_child_ends_with_us() -> None:
    code = (
        "import os; from probes.code import reader_child; from probes.files import file_reader; "
        "print(file_reader.start(reader_child).pid, flush=True); os._exit(0)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    until = time.monotonic() + PATIENCE_S
    while os.path.exists(f"/proc/{int(said)}"):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to give up")
def test_who_parses_has_no_rights_and_cannot_open_files(child: file_reader.Reader, hanging: Path) -> None:
    """Seen while one of them hangs: it is nobody, without a capability, behind a filter."""
    facts = os.stat(hanging / WHEN_READ)
    file = untrusted_files.opened(hanging / WHEN_READ, (facts.st_dev, facts.st_ino))
    with file, pytest.raises(OSError, match="within 2 s"):
        parsing.functions_in(file, ["cudaMalloc"], "it")
    (worker,) = descendants((child.pid,)) - {child.pid}
    lines = (line.partition(":") for line in Path(f"/proc/{worker}/status").read_text().splitlines())
    said = {key: value.split() for key, _, value in lines}
    assert said["Uid"] == ["65534"] * 4
    assert (said["CapPrm"], said["NoNewPrivs"], said["Seccomp"]) == (["0" * 16], ["1"], ["2"])
