"""Runs ``gputop record`` on a program and reads what it saw, what the program says and what bpftrace saw."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gputop.simgpu import ensure_built
from probes import schema
from probes.api import NAMES
from probes.proc.procfs import descendants
from probes.source import APIS, Sample
from replay.reader import SessionReader
from tests import inside
from tests.gputop_command import GPUTOP
from tests.waiting import HANGS_S, wait_until

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
PYTHON_PROGRAMS = (PROGRAMS, HERE.parent / "simgpu_programs")
TIMEOUT_S = HANGS_S
_ATTACHED_S = 400  # the kernel detaches what others leave behind first, one probe after the other


def compile_program(source: str, directory: Path, *flags: str, output: str = "") -> Path:
    """Compiles one of the C programs; returns the path of what came out."""
    target = directory / (output or Path(source).stem)
    command = ["cc", "-O2", "-Wall", "-pthread", "-o", str(target), str(PROGRAMS / source), *flags, "-ldl"]
    subprocess.run(command, check=True)
    return target


def traced(symbols: Counter[str], names: Collection[str] = NAMES) -> Counter[str]:
    """Those symbols that gputop traces, their variants together."""
    counts: Counter[str] = Counter()
    for symbol, count in symbols.items():
        name = re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", symbol)
        if name in names:
            counts[name] += count
    return counts


def told(log: Path) -> list[dict[str, Any]]:
    """What programs wrote about themselves into a file."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


@dataclass(frozen=True)
class Recorded:
    """One finished recording and the program's own words."""

    path: Path
    stats: dict[str, Any]
    said: list[dict[str, Any]]

    def process(self, pid: int) -> dict[str, Any]:
        """A process of the stats."""
        (found,) = [process for process in self.stats["processes"] if process["pid"] == pid]
        return found

    def counts(self, pid: int) -> Counter[str]:
        """API -> number of calls, nested or not."""
        counts: Counter[str] = Counter()
        for call in self.process(pid)["calls"]:
            counts[call["api"]] += call["count"]
        return counts

    def nesting(self, pid: int, api: str) -> dict[bool, int]:
        """nested -> number of calls of an API."""
        return {call["nested"]: call["count"] for call in self.process(pid)["calls"] if call["api"] == api}

    def thread(self, pid: int, tid: int) -> dict[str, Any]:
        """A thread of the stats."""
        (found,) = [thread for thread in self.process(pid)["threads"] if thread["tid"] == tid]
        return found

    @property
    def lost(self) -> int:
        """Events that the recorder says it lost."""
        return int(self.stats["lost"]["events"])

    @property
    def lost_by_kind(self) -> dict[str, int]:
        """The same by what was lost."""
        return dict(self.stats["lost"]["by_kind"])

    @property
    def lost_calls(self) -> int:
        """Calls among them."""
        return self.lost_by_kind["calls"]

    def records(self, kind: schema.Kind) -> schema.Records:
        """All records of a kind, in the order of their ends."""
        reader = SessionReader(self.path)
        batches = [item for item in reader.items() if not isinstance(item, Sample)]
        reader.close()
        found = schema.join(
            [schema.empty(), *(schema.select(batch, batch["kind"] == kind) for batch in batches)]
        )
        return found[np.argsort(found["t_end"], kind="stable")]

    def samples(self, kind: str) -> list[Sample]:
        """All samples of a kind, in their order."""
        reader = SessionReader(self.path)
        found = [item for item in reader.items() if isinstance(item, Sample) and item.kind == kind]
        reader.close()
        return found

    def calls(self) -> tuple[list[str], schema.Records]:
        """The API names by number as the file has them, and all call records."""
        reader = SessionReader(self.path)
        samples = [item for item in reader.items() if isinstance(item, Sample)]
        reader.close()
        (rows,) = [sample.data["rows"] for sample in samples if sample.kind == APIS]
        return [row[0] for row in rows], self.records(schema.Kind.CALL)


class Workshop:
    """One test's own simulated machine, log, and recording.

    Args:
        directory: For all its files.
        attach: How gputop attaches: ``perf`` or ``multi``; else as ``GPUTOP_ATTACH`` says. With perf events
            the probes are gone only minutes later, so the test then gets libraries of its own.
        lines: Whose lines gputop looks for; its programs for them take half a second to compile.
        gputop: The words that start it.
        own_libraries: No other test's gputop probes the libraries.
    """

    def __init__(
        self,
        directory: Path,
        attach: str = "",
        lines: str = "off",
        gputop: Sequence[str] = GPUTOP,
        *,
        own_libraries: bool = False,
    ) -> None:
        self.directory = directory
        self.lines = lines
        self.gputop = gputop
        self.attach = attach or os.environ.get("GPUTOP_ATTACH", "")
        self.libraries = ensure_built()
        self.own_libraries = own_libraries or self.attach == "perf"
        if self.own_libraries:
            self.libraries = directory / "libraries"
            shutil.copytree(ensure_built(), self.libraries, symlinks=True)
        self.file = directory / "run.gputop"
        self.self_log = directory / "self.jsonl"
        self.simgpu_log = directory / "simgpu.jsonl"
        self.env = dict(os.environ) | {
            "SELF_LOG": str(self.self_log),
            "SIMGPU_LOG": str(self.simgpu_log),
            "SIMGPU_STATE": str(directory / "state"),
            "SIMGPU_INIT_MS": "0",
            "SIMGPU_FIRST_LAUNCH_MS": "0",
            "PYTHONPATH": os.pathsep.join(map(str, PYTHON_PROGRAMS)),
        }
        if self.attach:
            self.env["GPUTOP_ATTACH"] = self.attach

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment in which a program finds the simulated libraries first."""
        made = dict(self.env if base is None else base)
        given = made.get("LD_LIBRARY_PATH")
        made["LD_LIBRARY_PATH"] = os.pathsep.join([str(self.libraries), *([given] if given else [])])
        return made

    def said(self) -> list[dict[str, Any]]:
        """What the program wrote about itself, a line for each process or thread."""
        return told(self.self_log)

    def start(
        self,
        arguments: Sequence[str],
        flags: Sequence[str] = ("--simgpu",),
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Starts ``gputop record``; ``arguments`` follow the flags (``-- CMD`` or ``--pid N``)."""
        environment = self.env | dict(env or {})
        if self.own_libraries and "--simgpu" in flags:
            flags = [flag for flag in flags if flag != "--simgpu"]
            environment = self.environment(environment)
        return subprocess.Popen(
            [
                *self.gputop,
                "record",
                "--force",
                "-o",
                str(self.file),
                "--lines",
                self.lines,
                *flags,
                *arguments,
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(
        self, recorder: subprocess.Popen[str], status: int = 0, seconds: float = TIMEOUT_S
    ) -> Recorded:
        """Waits for the recorder and reads what it wrote as ``gputop stats`` does."""
        try:
            _, errors = recorder.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            for pid in (recorder.pid, *descendants((recorder.pid,))):  # the program has its own session
                os.kill(pid, signal.SIGKILL)
            raise
        assert recorder.returncode == status, errors
        told = inside.run("stats", str(self.file), "--json")
        assert told.returncode == 0, told.stderr
        return Recorded(self.file, json.loads(told.stdout), self.said())

    def record(
        self,
        *command: str,
        flags: Sequence[str] = ("--simgpu",),
        env: Mapping[str, str] | None = None,
        status: int = 0,
        seconds: float = TIMEOUT_S,
    ) -> Recorded:
        """Records a program from its birth to its end."""
        return self.finish(self.start(["--", *command], flags, env), status, seconds)

    def record_all(
        self, programs: Mapping[str, Sequence[str]], flags: Sequence[str] = ("--simgpu",), **env: str
    ) -> dict[str, Recorded]:
        """Records programs one behind the other, by a single gputop; each with what that one said itself."""
        said = {name: self.directory / f"self-{number}.jsonl" for number, name in enumerate(programs)}
        lines = [
            shlex.join(["env", f"SELF_LOG={said[name]}", *command]) for name, command in programs.items()
        ]
        run = self.record("sh", "-ec", "\n".join(lines), flags=flags, env=env)
        return {name: replace(run, said=told(file)) for name, file in said.items()}

    def python(self, program: str, *arguments: str, **env: str) -> Recorded:
        """Records one of the Python programs."""
        return self.record(sys.executable, str(PROGRAMS / program), *arguments, env=env)

    def simgpu_counts(self, pid: int) -> Counter[str]:
        """What the simulated GPU counted for a process: symbol -> calls; all lines of it added up."""
        counts: Counter[str] = Counter()
        for text in self.simgpu_log.read_text(errors="replace").splitlines():
            line = json.loads(text) if text.strip() else {"pid": 0}
            if line["pid"] == pid and line["lib"] == "cuda":
                counts.update({name: count for name, count in line["calls"].items() if count})
        return counts


def library(name: str) -> str:
    """Path of a simulated library."""
    return str(ensure_built() / name)


@contextmanager
def bpftrace(script: str, output: Path) -> Iterator[None]:
    """Runs a bpftrace script around a block; its output is complete afterwards.

    Probes are attached one after the other, in an order that bpftrace chooses: when an interval at either
    end of the script has spoken, everything between them is attached.
    """
    ends = ['interval:ms:50 { printf("begin\\n"); }', 'interval:ms:50 { printf("end\\n"); }']
    program = output.with_suffix(".bt")
    program.write_text("\n".join([ends[0], script, ends[1]]))
    env = os.environ | {"BPFTRACE_MAP_KEYS_MAX": "65536", "BPFTRACE_PERF_RB_PAGES": "4096"}
    command = ["bpftrace", "-B", "line", str(program)]  # its -o FILE would be buffered all the same
    with output.open("w") as file:
        tracer = subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: tracer.poll() is not None or _ready(output), "bpftrace", _ATTACHED_S)
        assert tracer.poll() is None, tracer.communicate()[1]
        yield
        time.sleep(0.2)  # its perf buffers are polled
    finally:
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate(timeout=TIMEOUT_S)
    assert "Lost" not in errors + output.read_text(), "bpftrace itself lost events"


def _ready(output: Path) -> bool:
    return output.exists() and {"begin", "end"} <= set(output.read_text().splitlines())


def bpftrace_counts(output: Path) -> dict[int, Counter[str]]:
    """pid -> symbol -> calls, from a script that fills ``@[pid, probe]``."""
    counts: dict[int, Counter[str]] = {}
    for line in output.read_text().splitlines():
        if line.startswith("@[") and ", uprobe:" in line:
            key, _, number = line.rpartition(": ")
            pid, _, probe = key[2:-1].partition(", ")
            counts.setdefault(int(pid), Counter())[probe.rpartition(":")[2]] += int(number)
    return counts
