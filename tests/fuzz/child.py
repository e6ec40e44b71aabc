"""One target in this process, under limits: started by the runner, ended when its time is over.

What an input breaks is written beside it into a folder. The input at work stands in a file that is mapped, so
that the runner has it also when this process is ended from outside.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import hashlib
import mmap
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz import mutation

MEMORY_BYTES = 300 << 20  # of address space, beyond what is there before an input
CPU_S = 5.0  # of an input
CURRENT_BYTES = 4 << 20
FIRST = 160  # inputs: what these load for the first time stays, and is no growth
EACH = 16  # of so many inputs one is looked at for what it leaves behind, and stands for all of them
_HEAD = 40
_BLIND = 0.15  # the share of changes that know nothing of the structure
_LONGEST = 200_000  # bytes of an input
_PAGE = resource.getpagesize()
_SAID = os.dup(1)
_OURS = ("gputop", "probes", "replay", "fuzz")


class TooSlowError(BaseException):
    """An input took longer than it may; no reader takes this for damage."""


class GrownError(Exception):
    """What the inputs leave behind is too much: a reader keeps what it should forget."""


class Current:
    """The input at work, in a file that is mapped: its number, its length, what came before it, its bytes."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(CURRENT_BYTES)
            self._map = mmap.mmap(file.fileno(), CURRENT_BYTES)
        self._number = 0

    def put(self, data: bytes) -> None:
        """Another input begins."""
        self._number += 1
        kept = data[: CURRENT_BYTES - _HEAD]
        self._map[_HEAD : _HEAD + len(kept)] = kept
        self._map[:16] = self._number.to_bytes(8, "little") + len(kept).to_bytes(8, "little")

    def took(self, cpu_s: float, memory: int, left: int) -> None:
        """What the input took, and what all inputs so far have left behind."""
        slowest = max(int.from_bytes(self._map[16:24], "little"), int(cpu_s * 1e6))
        most = max(int.from_bytes(self._map[24:32], "little"), memory)
        figures = slowest, most, max(left, 0)
        self._map[16:_HEAD] = b"".join(figure.to_bytes(8, "little") for figure in figures)


def input_at_work(path: Path) -> tuple[int, bytes]:
    """(number, bytes) of what ``Current`` keeps in a file."""
    data = path.read_bytes()
    return int.from_bytes(data[:8], "little"), data[_HEAD : _HEAD + int.from_bytes(data[8:16], "little")]


def taken(path: Path) -> tuple[float, int, int]:
    """(CPU seconds of the slowest input so far, bytes that one took at most, bytes that all left)."""
    data = path.read_bytes()[16:_HEAD]
    slowest, most, left = (int.from_bytes(data[at : at + 8], "little") for at in (0, 8, 16))
    return slowest / 1e6, most, left


class Runner:
    """Runs inputs, keeps what they break: of each kind the first."""

    def __init__(self, name: str, out: Path) -> None:
        from tests.fuzz.target import target

        self.target = target(name)
        self.runs, self.kinds = 0, set[str]()
        self.left = 0  # bytes that the inputs left behind
        self.instrumented = False  # code that is guided leaves memory of its own with each input
        self.out, self._folder = out, out / "work"
        self._folder.mkdir(exist_ok=True)
        self._current = Current(out / "current")
        signal.signal(signal.SIGPROF, _too_slow)

    def __call__(self, data: bytes) -> None:
        """One input."""
        self._current.put(data)
        self.runs += 1
        counts = self.runs % EACH == 0 and self.runs > FIRST
        if counts:
            _let_go()
        begun, held = time.process_time(), _peak_bytes(anew=True)
        try:
            with _limits():
                self.target.run(data, self._folder)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._keep(data, error)
        finally:
            took, most = time.process_time() - begun, _peak_bytes() - held
            if counts:
                _let_go()
                self.left += EACH * (_held_bytes() - held)
            self._current.took(took, most, self.left)
        if self.left > MEMORY_BYTES and not self.instrumented:
            self._keep(data, GrownError(f"{self.runs} inputs left {self.left >> 20} MB behind"))

    def _keep(self, data: bytes, error: BaseException) -> None:
        kind = _kind(error)
        if kind in self.kinds:
            return
        self.kinds.add(kind)
        path = self.out / f"input-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
        path.write_bytes(data)
        said = "".join(traceback.format_exception(error, limit=-12))
        path.with_suffix(".txt").write_text(f"{kind}\n\n{said}", errors="replace")
        say(f"found: {kind}: {path}")


def _peak_bytes(*, anew: bool = False) -> int:
    """The most memory that this process has held, or, counted anew, what it holds: the fuzzer's own grows."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def _let_go() -> None:
    """What only waits to be freed, or is free already, is not held."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _held_bytes() -> int:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) << 10


def _kind(error: BaseException) -> str:
    """What tells one finding from another: the exception, and the innermost line of ours."""
    place = "?"
    for frame in traceback.extract_tb(error.__traceback__):
        if any(f"/{part}/" in frame.filename for part in _OURS) and frame.filename != __file__:
            place = f"{'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno}"
    return f"{type(error).__name__} at {place}"


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError(f"more than {CPU_S:g} s of a CPU")


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def own_loop(runner: Runner, seconds: float, runs: int, seed: int) -> None:
    """Mutations without regard to coverage: each from the number of the seed and its own."""
    pool = list(runner.target.seeds())
    for data in pool[: runs or None]:
        runner(data)
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until and (not runs or number < runs):
        rng = random.Random(f"{seed}/{number}")
        data = rng.choice(pool)
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = _mutated(runner, data, rng)
        runner(data)
        number += 1


def _mutated(runner: Runner, data: bytes, rng: random.Random) -> bytes:
    """What the target makes of an input; bytes without structure where it is none of its own any more.

    Nothing may be raised here: atheris waits for ever then.
    """
    try:
        return runner.target.mutate(data, rng)
    except Exception:
        return mutation.some_bytes(data, rng)


def guided(runner: Runner, seconds: float, seed: int, atheris: Any) -> None:
    """Mutations that atheris chooses among by the code that they reach. Does not return."""
    runner.instrumented = True
    corpus = runner.out / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(runner.target.seeds()):
        (corpus / str(number)).write_bytes(data)

    def mutated(data: bytes, most: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < _BLIND:
            return bytes(atheris.Mutate(data, most))
        return _mutated(runner, bytes(data), rng)[:most]

    words = [f"-max_total_time={max(int(seconds), 1)}", f"-seed={seed or 1}", f"-max_len={_LONGEST}"]
    words += ["-timeout=3600", "-rss_limit_mb=0", f"-artifact_prefix={runner.out}/"]
    atheris.Setup([sys.argv[0], *words, str(corpus)], runner, custom_mutator=mutated)
    atheris.Fuzz()


def say(text: str) -> None:
    """To the runner: what the readers themselves print goes nowhere."""
    os.write(_SAID, f"{text}\n".encode(errors="replace"))


def main() -> None:
    """Runs one target; what broke something lies in the folder then."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--input", type=Path)
    options = parser.parse_args()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    seed = options.seed
    with contextlib.suppress(ImportError):
        if not (options.plain or options.input):
            import atheris  # type: ignore[import-not-found, unused-ignore]

            with atheris.instrument_imports(include=["gputop", "probes", "replay"]):
                runner = Runner(options.name, options.out)
            guided(runner, options.seconds, seed, atheris)
    runner = Runner(options.name, options.out)
    if options.input is not None:
        runner(options.input.read_bytes())
    else:
        own_loop(runner, options.seconds, options.runs, seed)


if __name__ == "__main__":
    main()
