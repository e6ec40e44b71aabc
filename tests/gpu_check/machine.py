"""The machine: its Python with PyTorch, its GPU, and this kit's gputop as a command."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gputop.simgpu import environment
from replay.coding.file_format import SessionError
from replay.reader import SessionReader

_HERE = Path(__file__).resolve().parent / "programs"
PROGRAMS = _HERE if _HERE.exists() else Path(sys.prefix) / "programs"  # in the kit
_PYTHONS = (
    "python3",
    "python",
    "/opt/conda/bin/python",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/venv/bin/python",
)
_FACTS = """
import json, sys, torch
print(json.dumps({"python": sys.version.split()[0], "torch": torch.__version__, "cuda": torch.version.cuda,
                  "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else ""}))
"""
TIMEOUT_S = 240.0


class PartError(Exception):
    """A part cannot run; the message says why."""


@dataclass(frozen=True)
class Machine:
    """Where programs run.

    Attributes:
        python: The interpreter that has PyTorch; "" searches for one.
        simulated: There is no GPU: programs and gputop use the simulated one.
        folder: For what is left: results, recordings.
    """

    python: str
    simulated: bool
    folder: Path

    @cached_property
    def environment(self) -> dict[str, str]:
        """That of programs."""
        if not self.simulated:
            return dict(os.environ)
        return environment({**os.environ, "SIMGPU_TRACE": str(self.trace)})

    @cached_property
    def facts(self) -> dict[str, str]:
        """Versions of Python, PyTorch and CUDA, the GPU's name, and which interpreter it is.

        Raises:
            PartError: No interpreter has PyTorch with a GPU.
        """
        reasons = []
        for python in (self.python,) if self.python else _PYTHONS:
            if not shutil.which(python):
                continue
            python = os.path.abspath(python) if "/" in python else python
            done = subprocess.run(
                [python, "-c", _FACTS],
                cwd="/",  # Python's first place to import from, and root may stand anywhere
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
            facts = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout else {}
            if facts.get("gpu"):
                return {**facts, "interpreter": python}
            reason = "PyTorch sees no GPU" if facts else (done.stderr.strip().splitlines() or ["?"])[-1]
            reasons.append(f"{python}: {reason}")
        raise PartError(
            f"no Python with PyTorch and a GPU: {'; '.join(reasons) or 'none found'}; --python PATH names one"
        )

    def gputop(self, *arguments: str, ok: Sequence[int] = (0,)) -> str:
        """Runs a command of gputop to its end, and returns what it prints.

        Raises:
            PartError: Another status than expected.
        """
        done = self.started(*arguments)
        said, errors = done.communicate(timeout=TIMEOUT_S)
        if done.returncode not in ok:
            raise PartError(f"gputop {arguments[0]} ended with {done.returncode}: {errors.strip()[-300:]}")
        return said

    def json(self, *arguments: str, ok: Sequence[int] = (0,)) -> dict[str, Any]:
        """The same for a command that prints JSON."""
        told: dict[str, Any] = json.loads(self.gputop(*arguments, "--json", ok=ok))
        return told

    @property
    def trace(self) -> Path:
        """What the simulated GPU did."""
        return self.folder / "trace"

    @contextlib.contextmanager
    def recorded(self, recording: Path, pid: int) -> Iterator[int]:
        """Records a process meanwhile, from when its probes are attached; gives the recording's begin, ns.

        Raises:
            PartError: The recorder failed.
        """
        recording.unlink(missing_ok=True)
        record = self.started("record", "-o", str(recording), "--private", "--pid", str(pid))
        try:
            began = self._begun(record, recording)
            yield began
        finally:
            record.send_signal(signal.SIGINT)
            errors = record.communicate(timeout=TIMEOUT_S)[1]
        if record.returncode:
            raise PartError(f"gputop record ended with {record.returncode}: {errors.strip()[-300:]}")

    def _begun(self, record: subprocess.Popen[str], recording: Path) -> int:
        """Waits until the first frame is in the file: the probes are attached before."""
        deadline = time.monotonic() + TIMEOUT_S
        while record.poll() is None and time.monotonic() < deadline:
            with (
                contextlib.suppress(SessionError, OSError),
                contextlib.closing(SessionReader(recording)) as reader,
            ):
                if any(True for _ in reader.items()):
                    return int(reader.header["start_ns"])
            time.sleep(0.1)
        raise PartError("gputop record wrote nothing")

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a command of gputop."""
        watches = (
            self.simulated
            and arguments[0] in ("record", "check", "explain")
            and not arguments[1].endswith(".msgpack")
        )
        return subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-m",
                "gputop",
                arguments[0],
                *(["--simgpu"] if watches else []),
                *arguments[1:],
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


class Program:
    """A program of the kit that runs, and waits for what it is asked for (``programs/measured.py``)."""

    def __init__(self, machine: Machine, file: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [machine.facts["interpreter"], str(PROGRAMS / file), *arguments],
            env=machine.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(machine.folder / "errors.txt").open("w"),
            text=True,
            start_new_session=True,
        )
        self._errors = machine.folder / "errors.txt"
        self.ready = self._answer()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                told: dict[str, Any] = json.loads(line)
                return told
        self._process.wait()
        last = (self._errors.read_text().strip().splitlines() or ["it printed nothing"])[-1]
        raise PartError(f"the program ended with {self._process.returncode}: {last}")

    def begin(self) -> None:
        """Lets it use the GPU, and waits until it is warm."""
        self.ask("begin")
        self.answer()

    def ask(self, *words: object) -> None:
        """Begins a phase."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Waits for the end of a phase, and returns what it says."""
        return self._answer()

    def close(self) -> None:
        """Ends it, however far it is."""
        os.killpg(self._process.pid, 9)
        self._process.wait()
