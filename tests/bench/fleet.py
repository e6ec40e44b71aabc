"""What many recordings take: to explain them into a lake, and to ask what costs most in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.rows import Row

SIZES = (100, 1_000, 10_000)
GROWTH = 1.15  # CPU of a session, of ten times as many beside so many
WORKER_MB = 500.0
SOURCES = Path(__file__).resolve().parents[2] / "recordings"
NUMBERED = b"\xa6kernel"  # of their headers: the key, a byte of length, and the text that tells copies apart


@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds of a command and its children, and the most MB that one of them held."""

    cpu: float
    mb: float


def rows(folder: Path) -> list[Row]:
    """CPU a session as their number grows, memory of a worker, and a question to the lake."""
    found, before = [], 0.0
    for size in SIZES:
        sessions, lake = folder / f"sessions-{size}", folder / f"lake-{size}"
        sessions.mkdir()
        for number, data in zip(range(size), _copies(), strict=False):
            (sessions / f"{number}.msgpack").write_bytes(data)
        ingested = _run("ingest", sessions, "--into", lake)
        shutil.rmtree(sessions)
        taken = json.loads(_words("sql", lake, "SELECT count(*) FROM sessions", "--json"))["rows"]
        if taken != [[size]]:
            raise RuntimeError(f"{taken} sessions are in the lake, of {size}")
        asked = _run("overview", lake)
        told = _run("findings", lake)
        per = ingested.cpu / size
        kilobytes = sum(path.stat().st_size for path in lake.rglob("*") if path.is_file()) / 1e3
        detail = f"{ingested.cpu:.0f} s of CPU, {1e3 * per:.0f} ms each; {kilobytes:.0f} kB of lake"
        if before:
            found.append(Row(f"fleet: CPU a session, of {size}", per / before, "", GROWTH, detail))
        found.append(Row(f"fleet: memory of a process, {size}", ingested.mb, "MB", WORKER_MB, detail))
        asked_of = f"findings {told.cpu:.2f} s, {told.mb:.0f} MB"
        found.append(
            Row(f"fleet: overview over {size}", asked.cpu, "s", None, f"{asked.mb:.0f} MB; {asked_of}")
        )
        before = per
    return found


def _copies() -> Iterator[bytes]:
    """Our recordings over and over, none with the same content twice."""
    sources = [path.read_bytes() for path in sorted(SOURCES.glob("*.msgpack"))]
    for round_ in range(max(SIZES)):
        for data in sources:
            at = data.index(NUMBERED) + len(NUMBERED) + 1
            number = f"{round_:06d}".encode()
            yield data[:at] + number + data[at + len(number) :]


def _command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "gputop", "fleet", *map(str, words)]


def _words(*words: str | Path) -> str:
    return subprocess.run(_command(*words), stdout=subprocess.PIPE, text=True, check=True).stdout


def _run(*words: str | Path) -> Used:
    command = _command(*words)
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _pid, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}")
    return Used(used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)
