"""Signals that end gputop are heeded at once, with a status of their own, whatever code they meet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.process import interrupts
from gputop.process.interrupts import ENDING, Interrupted, answering, finishing, heeding
from tests.cli_support import complete, wait_for_size, whole
from tests.gputop_command import GPUTOP
from tests.processes import command_of, started_child
from tests.waiting import HANGS_S, wait_until


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_S, check=False
    )


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_that_a_library_swallows_is_reported_once_and_ends_the_block(number: signal.Signals) -> None:
    """Numpy does so with what is raised while it looks for an attribute."""
    told: list[int] = []

    def block() -> None:
        with heeding(told.append):
            for _ in range(2):
                with suppress(KeyboardInterrupt):
                    os.kill(os.getpid(), number)

    with pytest.raises(Interrupted) as ended:
        block()
    assert told == [number]
    assert ended.value.status == 128 + number


def test_what_was_to_be_ignored_stays_ignored_and_handlers_are_as_before() -> None:
    before, interrupted = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGINT)
    try:
        with heeding(lambda number: pytest.fail(f"signal {number} was heeded")):
            assert signal.getsignal(signal.SIGINT) is not interrupted
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is interrupted
    finally:
        signal.signal(signal.SIGHUP, before)


def test_who_only_reads_ends_on_the_spot_also_where_an_exception_would_be_swallowed() -> None:
    done = python("""
import os, signal
from gputop.process.interrupts import end_at_once
end_at_once()
try:
    os.kill(os.getpid(), signal.SIGINT)
except BaseException:
    pass
print("went on")
""")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_before_anything_is_read_is_no_traceback() -> None:
    done = python("""
import os, signal, sys
from gputop import __main__
from gputop.process import isolation
isolation.isolate = lambda: os.kill(os.getpid(), signal.SIGINT)
sys.exit(__main__.main())
""")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def those(*inside: signal.Signals) -> list[object]:
    """In ``make test`` some of the signals, and the others in ``make test-long``."""
    return [pytest.param(one, marks=() if one in inside else pytest.mark.long) for one in ENDING]


@pytest.mark.ebpf
@pytest.mark.parametrize("number", those(signal.SIGINT, signal.SIGTERM))
@pytest.mark.mainly("15")
def test_every_such_signal_ends_one_frame_its_recording_and_its_command(
    number: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "x"
    words = ["--once", "--duration", "60", "--lines", "off", "--record", str(file), "--", "sleep", "61"]
    process = subprocess.Popen(
        [*GPUTOP, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for_size(file, 4000)
        child = started_child(process.pid, "sleep 61")
        process.send_signal(number)
        _, errors = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
    assert (process.returncode, errors) == (128 + number, "")
    assert complete(file)
    wait_until(lambda: command_of(child) != "sleep 61", "the end of the command")


@pytest.mark.ebpf
def test_an_interrupt_while_the_command_is_let_go_completes_the_recording(tmp_path: Path) -> None:
    file = tmp_path / "x"
    done = python(f"""
import os, signal, sys
from gputop.__main__ import main
from gputop.commands.observation import ObservedRun
from gputop.process import isolation
isolation.isolate = lambda: None  # would start anew, without what is changed here
release = ObservedRun.release
def interrupted(session):
    release(session)
    os.kill(os.getpid(), signal.SIGINT)
ObservedRun.release = interrupted
sys.argv[1:] = ["--once", "--lines", "off", "--record", {str(file)!r}, "--", "sleep", "61"]
sys.exit(main())
""")
    assert (done.returncode, done.stderr) == (130, "")
    assert whole(file)


def test_an_answer_is_finished_after_the_first_interrupt_and_given_up_at_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []
    with answering(told.append) as came:
        os.kill(os.getpid(), signal.SIGINT)
    assert (told, came) == ([signal.SIGINT], [signal.SIGINT])
    monkeypatch.setattr(interrupts, "ONE_S", 0.0)

    def twice() -> None:
        with answering(told.append):
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)

    with pytest.raises(Interrupted) as ended:
        twice()
    assert (ended.value.status, told) == (130, [signal.SIGINT, signal.SIGTERM])


def test_what_is_finished_is_finished_before_the_first_interrupt_and_not_before_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    def finish(times: int) -> None:
        with finishing():
            for step in range(times):
                os.kill(os.getpid(), signal.SIGTERM)
                steps.append(f"after {step + 1}")

    with pytest.raises(Interrupted) as ended:
        finish(1)
    assert (ended.value.status, steps) == (143, ["after 1"])
    with pytest.raises(Interrupted):
        finish(2)
    assert steps == ["after 1", "after 1", "after 2"], (
        "at once: timeout(1) sends a process and its group one each"
    )
    del steps[1:]
    monkeypatch.setattr(interrupts, "ONE_S", 0.0)
    with pytest.raises(Interrupted):
        finish(2)
    assert steps == ["after 1", "after 1"]


@pytest.mark.ebpf
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.mainly("1")
def test_a_recording_ends_in_order_also_by_these(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "x"
    words = ["record", "--lines", "off", "-o", str(file), "--", "sleep", "60"]
    process = subprocess.Popen([*GPUTOP, *words], stderr=subprocess.PIPE)
    try:
        wait_for_size(file, 4000)
        process.send_signal(number)
        _, errors = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
    assert process.returncode == 128 + number, "that of the command, which was told as well"
    assert b"Traceback" not in errors
    assert complete(file)
