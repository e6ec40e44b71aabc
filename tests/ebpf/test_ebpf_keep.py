"""The flight recorder with real probes: one slow step, a bad end, an error of CUDA; and what is no reason."""

from __future__ import annotations

import math
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import pytest

from gputop.api import functions
from gputop.serve import triggers
from probes.source import MARKER, Sample
from replay.reader import SessionReader
from tests.observed_demo import SLEEPS
from tests.rootless_support import NOBODY, as_nobody, environment
from tests.serving import Daemon, marks_go_on, serving
from tests.waiting import HANGS_S, until_good, wait_until

pytestmark = pytest.mark.ebpf
STRETCH = 20  # steps in a row; gputop knows more of them before it calls one slow
PLANTED_S = 0.4  # less than ten steps: longer ones are no steps any more
# 56 ms of waiting for the GPU in each step; one step computes in Python before its end
STEPS = f"""
import os, sys, time
from cuda import Cuda
def held_up():
    end = time.monotonic() + {PLANTED_S}
    while time.monotonic() < end:
        pass
c = Cuda(); s = c.stream()
print("ready", os.getpid(), flush=True)
slow, count = int(sys.argv[1]), int(sys.argv[2])
log = open("steps", "w", buffering=1)
begin = time.monotonic_ns()
for step in range(count):
    for _ in range(8):
        c.launch(7_000_000, s)
    c.StreamSynchronize(s)
    end = time.monotonic_ns()
    print(end - begin, file=log)
    begin = end
    if step == slow:
        print("slow", time.monotonic_ns(), flush=True)
        before = time.thread_time_ns()
        held_up()
        print("computed", time.thread_time_ns() - before, flush=True)
"""
FAILS = """
import ctypes, os, sys, time
from cuda import Cuda
c = Cuda(); c.malloc(1 << 20)
print("ready", os.getpid(), flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
out = ctypes.c_void_p()
code = c.Malloc(ctypes.byref(out), ctypes.c_size_t(1 << 50))
assert code != 0
sys.exit(3)
"""
WAITS = """
import os, sys, time
from cuda import Cuda
c = Cuda(); c.malloc(1 << 20)
print("ready", os.getpid(), flush=True)
time.sleep(600)
"""


def _program(home: Path, text: str, *words: str, nobody: bool = False) -> subprocess.Popen[str]:
    script = home / f"program{len(list(home.glob('program*')))}.py"
    script.write_text(text)
    script.chmod(0o644)
    return subprocess.Popen(
        # a step that is slow since others have the CPU is slow: here nobody is to be the reason but the test
        ["chrt", "--fifo", "1", *(as_nobody() if nobody else ()), sys.executable, str(script), *words],
        env=environment(home) | SLEEPS,
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
    )


def _said(process: subprocess.Popen[str], word: str) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return int(line.split()[1])
    raise AssertionError(f"the program ended before it said {word}")


def _kept(home: Path, kind: str, *pids: int) -> list[Path]:
    """What was kept of these processes: the daemon looks at all programs of the machine."""
    return sorted(path for pid in pids for path in (home / "kept").glob(f"*-{kind}-{pid}.msgpack"))


def _told_of(home: Path, pid: int) -> list[str]:
    """What is kept of a process's end: events of a user that come close together share a session."""
    found = (text for path in (home / "kept").glob("*.msgpack") for text in _markers(path))
    return [text for text in found if re.search(rf"\b{pid}\b", text)]


def _open(home: Path) -> Path:
    for folder in (home, *home.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    for name in ("state", "steps"):  # what the programs write, whoever they are
        (home / name).touch()
        (home / name).chmod(0o666)
    return home


def _flags(home: Path, *more: str) -> tuple[str, ...]:
    return ("--keep-dir", str(home / "kept"), "--before", "20", "--after", "2", *more)


def _markers(path: Path) -> list[str]:
    reader = SessionReader(path)
    found = [str(sample.data["text"]) for sample in reader.samples(MARKER) if isinstance(sample, Sample)]
    assert not reader.problems
    reader.close()
    return found


@pytest.mark.long  # others that take its CPU make slow steps, too
def test_one_planted_slow_step_makes_one_session_of_the_users_that_explains_it(tmp_path: Path) -> None:
    """Where the machine has made a step slow before it, gputop keeps that one: the program runs once more."""

    def planted() -> bool:
        """Whether the session that was kept is that of the planted step."""
        return _keeps_the_planted_step(_open(Path(tempfile.mkdtemp(dir=tmp_path))))

    assert until_good(planted, bool)


def _keeps_the_planted_step(home: Path) -> bool:
    """Asserts all about the one session, if it is the planted step's; else that another step was slow."""
    with serving(home, *_flags(home), "--lines", "all"):
        process = _program(home, STEPS, "120", "100000", nobody=True)
        try:
            pid = _said(process, "ready")
            slow_ns = _said(process, "slow")
            computed_ns = _said(process, "computed")  # while others have its CPU it does not
            wait_until(lambda: _kept(home, "slow-step", pid), "the session")
            (path,) = _kept(home, "slow-step", pid)
        finally:
            process.kill()
            process.wait()
        facts = path.stat()
        assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (NOBODY, 0o600)
        own_ms, told_ms = _steps_ms(home), _told_steps_ms(path)
        assert told_ms
        assert _all_happened(told_ms, own_ms), (told_ms, own_ms)
        if not (planted := _as_planted(told_ms)):
            return False
        assert len(planted) <= len(_as_planted(own_ms)), (told_ms, own_ms)
        report = functions.explain(str(path))
        start = report.start_ns
        near = [event for event in report.events if abs(start + event.time_ns - slow_ns) < 0.3e9]
        assert near, report.events
        (event,) = near
        assert event.pid == pid
        assert event.ns == pytest.approx(computed_ns, rel=0.2)
        assert event.line is not None
        assert event.line.function == "held_up"
    assert len(_kept(home, "slow-step", pid)) == 1
    return True


def test_an_end_by_a_signal_and_one_after_an_error_of_cuda_are_kept_and_others_are_not(
    tmp_path: Path,
) -> None:
    home = _open(tmp_path)
    with serving(home, *_flags(home)) as daemon:
        killed, ended, failed = (
            _program(home, WAITS),
            _program(home, WAITS),
            _program(home, FAILS),
        )
        numbers = [_said(process, "ready") for process in (killed, ended, failed)]
        marks_go_on(daemon, 2)
        (home / "go").touch()
        os.kill(numbers[0], signal.SIGABRT)
        os.kill(numbers[1], signal.SIGTERM)  # somebody has asked for it
        for process in (killed, ended, failed):
            process.wait(HANGS_S)
        wait_until(lambda: all(_told_of(home, number) for number in numbers[::2]), "both sessions")
    (text,) = _told_of(home, numbers[0])
    assert "SIGABRT" in text
    (text,) = _told_of(home, numbers[2])
    assert "status 3 after cudaMalloc had failed (error 2, no memory)" in text
    assert not _told_of(home, numbers[1])


def _told_steps_ms(path: Path) -> list[float]:
    """How long the steps took that markers of a session call slow."""
    found = [re.search(r"a step of .* took ([\d.]+)(ms|s)", text) for text in _markers(path)]
    return [float(one[1]) * (1000 if one[2] == "s" else 1) for one in found if one is not None]


def _steps_ms(home: Path) -> list[float]:
    """Of the program's steps, by its own clock."""
    return [int(line) / 1e6 for line in (home / "steps").read_text().splitlines()]


def _as_planted(steps_ms: list[float]) -> list[float]:
    """Those of the steps that are as long as the planted one."""
    return [ms for ms in steps_ms if PLANTED_S * 1e3 * 0.95 < ms < PLANTED_S * 1e3 * 1.6]


def _all_happened(told_ms: list[float], own_ms: list[float]) -> bool:
    """Whether the program itself knows each of these slow steps: a machine that stands still makes some.

    Like gputop, it compares each step with those before it only. Which of them gputop has seen is not known,
    so the fastest stretch of them counts.
    """
    slow, usual = [], math.inf
    for place in range(STRETCH, len(own_ms)):
        usual = min(usual, median(own_ms[place - STRETCH : place]))
        if own_ms[place] > 0.9 * triggers.SLOW * usual:
            slow.append(own_ms[place])
    return all(any(ms == pytest.approx(one, rel=0.1) for one in slow) for ms in told_ms)


@pytest.mark.timed
def test_a_program_whose_steps_are_alike_makes_no_session_and_a_signal_makes_one(tmp_path: Path) -> None:
    """Alike by its own clock: a machine that stood still for a moment has made a step slow."""
    home = _open(tmp_path)
    with serving(home, *_flags(home)) as daemon:
        process = _program(home, STEPS, "-1", "100000")
        try:
            pid = _said(process, "ready")
            marks_go_on(daemon, 6)
            kept = _kept(home, "slow-step", pid)
            own_ms, told_ms = _steps_ms(home), [_told_steps_ms(path) for path in kept]
            assert all(told_ms), "each session has its slow step"
            assert _all_happened([ms for one in told_ms for ms in one], own_ms), (told_ms, own_ms)
            daemon.process.send_signal(signal.SIGUSR2)
            wait_until(lambda: _kept(home, "requested", 0), "the session")
        finally:
            process.kill()
            process.wait()
    (path,) = _kept(home, "requested", 0)
    assert path.stat().st_uid == 0
    assert functions.stats(str(path)).processes


def test_users_learn_of_their_own_kept_sessions_only(tmp_path: Path) -> None:
    home = _open(tmp_path)
    with serving(home, *_flags(home)) as daemon:
        mine, roots = _program(home, WAITS, nobody=True), _program(home, WAITS)
        numbers = [_said(process, "ready") for process in (mine, roots)]
        marks_go_on(daemon, 2)
        for process in (mine, roots):
            process.send_signal(signal.SIGABRT)
            process.wait(HANGS_S)
        wait_until(lambda: len(_kept(home, "ended", *numbers)) >= 2, "both")  # of two users
        all_of_them = {row["path"] for row in daemon.status()["kept"]}
        assert all_of_them >= {str(path) for path in _kept(home, "ended", *numbers)}
        seen = _listed_by_nobody(daemon)
        pids = [int(Path(row).stem.rpartition("-")[2]) for row in seen]
        assert [pid for pid in pids if pid in numbers] == numbers[:1]  # others of this user's may run beside
        plain = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "cat")
        for path in _kept(home, "ended", *numbers):

            def agrees(path: Path = path) -> bool:
                done = subprocess.run([*plain, str(path)], capture_output=True, check=False)
                return (done.returncode == 0) == (str(path) in seen)

            wait_until(agrees, f"{path} to be its owner's alone")


def _listed_by_nobody(daemon: Daemon) -> list[str]:
    code = (
        "import sys; from gputop.serve.clients.client import request_once; "
        "[print(row['path']) for row in request_once(sys.argv[1], 'status')['data']['kept']]"
    )
    done = subprocess.run(
        [*as_nobody(), sys.executable, "-c", code, daemon.socket],
        env=environment(daemon.home),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
