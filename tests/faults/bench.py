"""Runs scenarios: many under one recording, one after another, or one that gputop joins later."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputop.simgpu import environment
from replay.reader import SessionReader
from tests.faults import priority
from tests.faults.cgroup import cpu_group
from tests.faults.diary import Truth, read_life, read_truth
from tests.faults.scenario import THROTTLED_AFTER_S, Scenario
from tests.gputop_command import GPUTOP

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
TIMEOUT_S = 180.0
FILE_BYTES = 128 << 20
# weight of a group with a quota: what the hog takes is small, but it takes all that is left
BESIDE_A_HOG = 8192
SETTLE_S = 0.06  # between runs: the one's last records are not the next one's first


@dataclass(frozen=True, slots=True)
class Run:
    """What one run left: where its records are, and the truth."""

    scenario: Scenario
    recording: Path
    began_ns: int
    ended_ns: int
    truth: Truth
    throttled_ns: int = 0


class RunError(Exception):
    """The workload itself failed."""


def build(directory: Path) -> None:
    """Compiles the programs."""
    flags = ["cc", "-O2", "-Wall", "-Wextra", "-pthread"]
    sources = [str(PROGRAMS / name) for name in ("script.c", "cuda_ops.c", "host_ops.c")]
    subprocess.run([*flags, "-o", str(directory / "script"), *sources, "-ldl"], check=True)
    subprocess.run(
        [*flags, "-shared", "-fPIC", "-o", str(directory / "burn.so"), str(PROGRAMS / "burn.c")], check=True
    )


class Bench:
    """A directory with the programs and everything that runs leave.

    Args:
        directory: On a disk, not in memory: files there are read past the page cache.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        build(directory)
        self._number = 0
        self._data = directory / "data"
        with self._data.open("wb") as file:
            for _ in range(FILE_BYTES >> 20):
                file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
        self._fault = directory / "fault"
        self._fault.touch()
        self._connection: Any = None
        self._recording: Path | None = None

    def _env(self, place: Path, scenario: Scenario) -> dict[str, str]:
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("SIMGPU", "FAULTS"))
        }
        return {
            **environment(inherited),
            "PYTHONPATH": str(HERE.parent / "simgpu_programs"),
            "SIMGPU_STATE": str(self.directory / "state"),
            "SIMGPU_TRACE": str(place / "trace"),
            "SIMGPU_INIT_MS": "20",
            "SIMGPU_FIRST_LAUNCH_MS": "1",
            "FAULTS_LIMIT_MS": str(int(scenario.limit_ms)),
            "FAULTS_DIARY": str(place / "diary"),
            "FAULTS_FILE": str(self._data),
            "FAULTS_BURN": str(self.directory / "burn.so"),
            "FAULTS_STREAMS": scenario.streams,
            "FAULTS_SYNC": "4" if scenario.blocking else "0",
            **(
                {"WORLD": str(scenario.ranks), "ID": str(place / "id"), "SIMGPU_DEVICES": str(scenario.ranks)}
                if scenario.ranks
                else {}
            ),
            **({"SIMGPU_NVML_FAULT_FILE": str(self._fault)} if scenario.throttle_mhz else {}),
            **scenario.env,
        }

    def _place(self, name: str) -> Path:
        self._number += 1
        place = self.directory / f"{self._number:03d}-{name}"
        (place / "diary").mkdir(parents=True)
        return place

    def _command(self, place: Path, scenario: Scenario, script: str, name: str = "script") -> list[str]:
        (place / f"{name}.txt").write_text(script)
        if scenario.language == "python":
            return [sys.executable, str(PROGRAMS / "script.py"), str(place / f"{name}.txt")]
        return [str(self.directory / "script"), str(place / f"{name}.txt")]

    # -- recording ----------------------------------------------------------------------------

    def _gputop(self, *arguments: str) -> subprocess.Popen[str]:
        env = os.environ | {
            "SIMGPU_STATE": str(self.directory / "state"),
            "SIMGPU_NVML_FAULT_FILE": str(self._fault),
            "SIMGPU_NVML_WINDOW_MS": "200",
            "SIMGPU_DEVICES": "2",
        }
        return _started([*GPUTOP, "record", "--simgpu", *arguments], env, priority.RECORDER)

    @contextlib.contextmanager
    def recording(self, name: str) -> Iterator[Path]:
        """Everything that ``run`` runs meanwhile goes to one recording, complete afterwards."""
        path, address = self.directory / f"{name}.gputop", self.directory / f"{name}.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen(1)
            listener.settimeout(TIMEOUT_S)
            launcher = [sys.executable, str(HERE / "launcher.py"), str(address)]
            recorder = self._gputop("-o", str(path), "--", *launcher)
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as stream:
                self._connection, self._recording = stream, path
                try:
                    yield path
                finally:
                    self._connection = None
            # makefile holds the connection open until here: the launcher now ends, and with it gputop
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        _finish(recorder)

    def run(self, scenario: Scenario) -> Run:
        """Runs a scenario under the open recording, or under one of its own if gputop comes later."""
        place = self._place(scenario.id)
        env = self._env(place, scenario)
        script = scenario.script
        with contextlib.ExitStack() as around:
            if scenario.server_ms:
                script = script.replace("PORT", str(around.enter_context(server(scenario.server_ms))))
            if scenario.outside:
                around.enter_context(self._outside(place, scenario))
            if scenario.throttle_mhz:
                around.enter_context(self._throttled(scenario.throttle_mhz))
            group = (
                around.enter_context(cpu_group(scenario.quota, *([BESIDE_A_HOG] if scenario.outside else [])))
                if scenario.quota
                else None
            )
            before = group.throttled_ns() if group else 0
            argv = self._command(place, scenario, script)
            if scenario.attached:
                recording, answer = self._run_attached(place, argv, env)
            else:
                recording, answer = self._run_launched(
                    argv, env, group.paths if group else [], scenario.kill_after_s or TIMEOUT_S
                )
            throttled = group.throttled_ns() - before if group else 0
        if scenario.kill_after_s:
            answer["status"] += signal.SIGKILL
        if answer["status"] != 0:
            raise RunError(f"{scenario.id}: status {answer['status']}: {answer['errors']}")
        truth = read_truth(
            place / "diary", place / "trace", answer["pid"], answer["began"], scenario.nominal_ns
        )
        return Run(scenario, recording, answer["began"], answer["ended"], truth, throttled)

    def run_explained(self, scenario: Scenario) -> tuple[Run, str]:
        """Runs a scenario under ``gputop explain``, or attaches that in mid-run; what it printed."""
        place = self._place(scenario.id)
        argv, env = self._command(place, scenario, scenario.script), self._env(place, scenario)
        began = time.monotonic_ns()
        if scenario.attached:
            gate = place / "gate"
            program = _started(argv, env | {"FAULTS_GATE": str(gate)}, priority.PROGRAM)
            _wait(gate.exists, "the program to be warm")
            gate.with_suffix(".go").touch()
            try:
                printed = self._explained(env, "--pid", str(program.pid), "--duration", "1")
            finally:
                _kill_group(program.pid)
                program.communicate(timeout=TIMEOUT_S)
            pid = program.pid
        else:
            printed = self._explained(env, "--", *argv)
            pid = next(
                life.pid for life in map(read_life, (place / "diary").iterdir()) if life.role == "main"
            )
        truth = read_truth(place / "diary", place / "trace", pid, began)
        return Run(scenario, place, began, time.monotonic_ns(), truth), printed

    def _explained(self, env: dict[str, str], *arguments: str) -> str:
        asked = _started([*GPUTOP, "explain", "--simgpu", "--json", *arguments], env, priority.RECORDER)
        printed, errors = asked.communicate(timeout=TIMEOUT_S)
        if asked.returncode not in (0, 3):
            raise RunError(f"gputop explain: {errors}")
        return printed

    def run_bare(self, scenario: Scenario) -> tuple[int, int, Path]:
        """Runs a program at once, for its trace alone: (begun, ended, trace)."""
        place = self._place(scenario.id)
        argv, env = self._command(place, scenario, scenario.script), self._env(place, scenario)
        _, answer = self._run_launched(argv, env, [], TIMEOUT_S, settle_s=0)
        if answer["status"] != 0:
            raise RunError(f"{scenario.id}: status {answer['status']}: {answer['errors']}")
        return answer["began"], answer["ended"], place / "trace"

    def _run_launched(
        self,
        argv: list[str],
        env: dict[str, str],
        groups: list[str],
        limit_s: float,
        settle_s: float = SETTLE_S,
    ) -> tuple[Path, dict[str, Any]]:
        assert self._recording is not None
        time.sleep(settle_s)
        job = {"argv": argv, "env": env, "cgroups": groups, "nice": priority.PROGRAM, "timeout_s": limit_s}
        self._connection.write(json.dumps(job) + "\n")
        self._connection.flush()
        answer: dict[str, Any] = json.loads(self._connection.readline())
        time.sleep(settle_s)
        return self._recording, answer

    def _run_attached(self, place: Path, argv: list[str], env: dict[str, str]) -> tuple[Path, dict[str, Any]]:
        gate, path = place / "gate", place / "attached.gputop"
        program = _started(argv, env | {"FAULTS_GATE": str(gate)}, priority.PROGRAM)
        try:
            _wait(lambda: gate.exists() or program.poll() is not None, "the program to be warm")
            recorder = self._gputop("-o", str(path), "--pid", str(program.pid))
            _wait(lambda: path.exists() or recorder.poll() is not None, "gputop to attach")
            time.sleep(0.1)
            began = time.monotonic_ns()
            gate.with_suffix(".go").touch()
            _, errors = program.communicate(timeout=TIMEOUT_S)
            ended = time.monotonic_ns()
        finally:
            _kill_group(program.pid)
        _finish(recorder)
        return path, {
            "pid": program.pid,
            "status": program.returncode,
            "errors": errors,
            "began": began,
            "ended": ended,
        }

    @contextlib.contextmanager
    def _throttled(self, mhz: int) -> Iterator[None]:
        """The GPU's clock is held down after a while, until the end."""
        timer = threading.Timer(THROTTLED_AFTER_S, self._fault.write_text, [f"throttle:64:{mhz}"])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._fault.write_text("")

    @contextlib.contextmanager
    def _outside(self, place: Path, scenario: Scenario) -> Iterator[None]:
        """A program beside, which gputop was not told to watch."""
        (place / "other").mkdir()
        env = self._env(place, scenario) | {"FAULTS_DIARY": str(place / "other")}
        env["SIMGPU_TRACE"] += ".outside"
        if "launch" not in scenario.outside:
            del env["FAULTS_STREAMS"]
        (place / "outside.txt").write_text(scenario.outside)
        argv = [str(self.directory / "script"), str(place / "outside.txt")]
        program = subprocess.Popen(argv, env=env, start_new_session=True, preexec_fn=priority.ordinary)
        try:
            yield
        finally:
            _kill_group(program.pid)
            program.wait()


def _started(argv: Sequence[str], env: dict[str, str], nice: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: priority.own_session(nice),
    )


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _finish(recorder: subprocess.Popen[str]) -> None:
    _, errors = recorder.communicate(timeout=TIMEOUT_S)
    if recorder.returncode != 0:
        raise RunError(f"gputop record: {errors}")


def _wait(condition: Any, what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise RunError(f"waited in vain for {what}")
        time.sleep(0.005)


@contextlib.contextmanager
def server(delay_ms: float) -> Iterator[int]:
    """A server on this host that answers each byte after a while; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    while connection.recv(1):
                        time.sleep(delay_ms / 1e3)
                        connection.sendall(b"!")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])


def on_disk() -> Path:
    """A directory on a disk for a bench; the caller removes it."""
    base = Path("/var/tmp")
    path = base / f"gputop-faults-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def recording_start(path: Path) -> int:
    """When the recording began, CLOCK_MONOTONIC ns."""
    reader = SessionReader(path)
    try:
        return int(reader.header["start_ns"])
    finally:
        reader.close()
