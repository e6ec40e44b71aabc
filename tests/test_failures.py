"""What goes wrong unexpectedly is a sentence with its next step, and nothing is left half done."""

from __future__ import annotations

import _thread
import errno
import io
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.checks.check_tracing import held_back
from gputop.errors import OutputError
from gputop.process import failures
from gputop.process.stdio import print_message, put, silence
from probes.ebpf import attacher, loader
from probes.observe import live_source
from probes.source import PROBLEM, Sample
from probes.stacks import line_tracker
from replay.coding.file_format import SessionError
from replay.writer import SessionWriter


def refusal(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


def because(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (refusal(errno.EMFILE, "/proc/1/maps"), "/proc/1/maps: Too many open files; allow more open files"),
        (refusal(errno.ENFILE), "a system call failed: Too many open files in system; this machine's"),
        (refusal(errno.EIO, "/etc/x"), "/etc/x: Input/output error; the disk or device fails: see dmesg"),
        (refusal(errno.ENOENT, "/x.py"), "/x.py: No such file or directory; if it belongs to gputop"),
        (MemoryError(), "there is not enough memory; end other programs"),
        (SystemError("error return without exception set"), "there is not enough memory"),
        (
            because(ImportError("numpy is broken:\nread this"), refusal(errno.EMFILE, "/n.py")),
            "/n.py: Too many",
        ),
        (SessionError("run.gputop is empty"), "run.gputop is empty"),
        (loader.ProbeError("the kernel is too old"), "the kernel is too old"),
        (refusal(errno.ENOENT), "this should not have happened: FileNotFoundError"),
        (ValueError("2"), "this should not have happened: ValueError: 2"),
    ],
)
def test_what_the_machine_refuses_is_distinguished_from_mistakes_of_ours(error: Exception, said: str) -> None:
    assert failures.sentence(error).startswith(said)


class Full(io.StringIO):
    """A stream that takes nothing."""

    def flush(self) -> None:
        raise refusal(errno.ENOSPC)


def test_only_an_output_that_takes_nothing_is_reported_to_be_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(OutputError, match=r"^the output cannot be written: No space left on device; nothing"):
        put("{}")
    assert "the output" not in failures.sentence(refusal(errno.EIO, "/proc/1/stat"))


def test_who_cannot_be_heard_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    told: list[int] = []
    monkeypatch.setattr("gputop.process.stdio.silence", told.append)
    print_message("a sentence")
    assert told == [2]


def test_an_output_is_silenced_also_when_nothing_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Full()
    monkeypatch.setattr(sys, "stdout", full)
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(refusal(errno.EMFILE)))
    silence(1)
    monkeypatch.undo()
    assert sys.stdout is not full


def test_a_thread_that_fails_is_reported_in_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    failures.listen()

    def fail() -> None:
        raise refusal(errno.EMFILE, "/proc/1/maps")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert capsys.readouterr().err.startswith("gputop: /proc/1/maps: Too many open files; ")


@pytest.mark.parametrize("threads", [0, 1, 99])
def test_all_is_closed_however_many_threads_are_to_be_had(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, begin = [], _thread.start_new_thread

    def start(work: Any, arguments: Any) -> None:
        if len(started) >= threads:
            raise RuntimeError("can't start new thread")
        started.append(begin(work, arguments))

    monkeypatch.setattr(_thread, "start_new_thread", start)
    ends = [end for _ in range(4) for end in os.pipe()]
    attacher.close_all(ends)
    assert len(started) == min(threads, len(ends) - 1)
    for end in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)


def test_a_recording_that_cannot_begin_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.gputop"
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(refusal(errno.ENOSPC)))
    with pytest.raises(SessionError) as refused:
        SessionWriter(file, {})
    monkeypatch.undo()
    assert str(refused.value) == (
        f"{file} cannot be written: the disk is full; choose another place for the recording"
    )
    assert not file.exists()


def test_without_a_place_for_what_libraries_write_it_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda *_: (_ for _ in ()).throw(refusal(errno.ENOENT)))
    with held_back() as log:
        pass
    assert log() == []


def test_nobody_waits_for_lines_whose_ring_cannot_be_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Sample] = []
    attachments: Any = SimpleNamespace(attach_tracepoints=lambda _: None)
    loaded: Any = SimpleNamespace(tracepoints={}, timer=None, maps={"stacks": -1})
    others: Any = SimpleNamespace(maps={})
    monkeypatch.setattr(line_tracker.programs, "join", lambda *_: None)
    monkeypatch.setattr(line_tracker, "StackRing", lambda *_: (_ for _ in ()).throw(refusal(errno.ENOMEM)))
    known = line_tracker.Lines(attachments, others, lambda _: True, told.append, ())
    known.load(loaded)
    assert known.ready.is_set()
    assert [sample.kind for sample in told] == [PROBLEM]
    assert "lines of Python are unknown: [Errno 12] Cannot allocate memory" in told[0].data["text"]
    known.close()


def links() -> int:
    """How many links of BPF programs this process holds."""
    held = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            held += "bpf_link" in os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # that of the listing itself
            continue
    return held


@pytest.mark.ebpf
def test_probes_that_do_not_all_start_leave_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    before, during = links(), []

    def fail(*_: object) -> None:
        during.append(links())
        raise refusal(errno.ENOMEM)

    monkeypatch.setattr(live_source.LiveSource, "attach_libraries", fail)
    with pytest.raises(loader.ProbeError, match=r"^the probes did not start: Cannot allocate memory$"):
        live_source.LiveSource(live_source.LivePlan(lines="off")).start()
    assert during[0] > before
    assert links() == before
