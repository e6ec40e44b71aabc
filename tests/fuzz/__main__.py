"""Runs fuzz targets: ``python -m tests.fuzz [TARGET …] --seconds 600``.

Each has a process of its own. What breaks something is written to the folder that is named at the end, with
the error beside it; ``--input FILE TARGET`` runs such a file again. Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.child import input_at_work, taken
from tests.fuzz.target import NAMES

ROOT = Path(__file__).resolve().parents[2]
_STUCK_S = 120.0  # with one input: it waits, or is where Python handles no signals
_MARGIN_S = 180.0  # beyond its time: to start, and to end the last input
_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a target.

    Attributes:
        found: Inputs that broke something, each beside a text that says what.
        inputs: How many it was given.
        error: Why the target itself did not come to its end, or "".
        slowest_s: CPU seconds of the slowest input.
        memory_bytes: That an input made its process grow by, at most.
        left_bytes: What all inputs together left behind in the process.
        covered: Edges of the readers' code that were reached; None: nobody counted (no atheris).
    """

    found: tuple[Path, ...]
    inputs: int
    error: str
    slowest_s: float = 0.0
    memory_bytes: int = 0
    left_bytes: int = 0
    covered: int | None = None

    @property
    def text(self) -> str:
        """What was found, for a person."""
        said = [f"{path}: {path.with_suffix('.txt').read_text()}" for path in self.found]
        return "\n".join([*said, self.error]).strip()

    @property
    def figures(self) -> str:
        """How much was tried, and what it took."""
        covered = "not guided" if self.covered is None else f"{self.covered} edges"
        return (
            f"{self.inputs} inputs, {len(self.found)} findings, {covered}, "
            f"slowest {self.slowest_s:.2f} s, at most {self.memory_bytes >> 20} MB for one, "
            f"{self.left_bytes >> 20} MB left by all"
        )


def run(name: str, out: Path, *words: str, seconds: float) -> Outcome:
    """Runs a target.

    Args:
        name: One of ``NAMES``.
        out: Folder for what it finds.
        words: More for its command line.
        seconds: For how long.
    """
    out.mkdir(parents=True, exist_ok=True)
    log = out / "log"
    command = [sys.executable, "-m", "tests.fuzz.child", name, str(out), "--seconds", str(seconds), *words]
    # root's preferences are read from where root alone can write: /tmp is none
    with log.open("wb") as said:
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            error = _watched(child, out / "current", seconds)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    current = out / "current"
    number, data = input_at_work(current) if current.exists() else (0, b"")
    slowest_s, memory, left = taken(current) if current.exists() else (0.0, 0, 0)
    if not error and child.returncode:
        error = f"{name} ended with status {child.returncode}: {_end(log)}"
    if error:
        (out / "last").write_bytes(data)
        error = f"{error}; the last input: {out / 'last'}"
    found = tuple(sorted(path for path in out.glob("input-*") if path.suffix != ".txt"))
    counts = re.findall(r"^#\d+\t.* cov: (\d+)", log.read_text(errors="replace"), re.MULTILINE)
    return Outcome(found, number, error, slowest_s, memory, left, int(counts[-1]) if counts else None)


def _watched(child: subprocess.Popen[bytes], current: Path, seconds: float) -> str:
    """Waits for the end of a target; why it did not come, or ""."""
    deadline = time.monotonic() + seconds + _MARGIN_S
    before, since = 0, time.monotonic()
    while True:
        try:
            child.wait(_LOOK_S)
            return ""
        except subprocess.TimeoutExpired:
            pass
        number = input_at_work(current)[0] if current.exists() else 0
        if number != before:
            before, since = number, time.monotonic()
        if time.monotonic() - since > _STUCK_S:
            return f"an input took more than {_STUCK_S:g} s"
        if time.monotonic() > deadline:
            return f"it did not end {_MARGIN_S:g} s after its time"


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:]


def main() -> int:
    """Runs the targets of the command line, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=float, default=600, help="for each")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--plain", action="store_true", help="without atheris")
    parser.add_argument("--input", type=Path, help="run this input alone")
    options = parser.parse_args()
    wrong = [name for name in options.targets if name not in NAMES]
    if wrong:
        parser.error(f"there is no target {wrong[0]}: {', '.join(NAMES)}")
    base = Path.home() if os.geteuid() == 0 else Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="gputop-fuzz-", dir=base))
    words = ["--seed", options.seed, *(["--plain"] if options.plain else [])]
    words += ["--input", str(options.input.resolve())] if options.input else []
    broken = False
    for name in options.targets or NAMES:
        outcome = run(name, folder / name, *words, seconds=options.seconds)
        broken |= bool(outcome.text)
        print(
            f"{name}: {outcome.figures}\n{outcome.text}".strip(),
            flush=True,
        )
    if broken:
        print(folder)
    else:
        shutil.rmtree(folder)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
