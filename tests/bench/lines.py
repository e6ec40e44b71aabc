"""What the line of a call costs, of Python and of native code, under 16 frames, in empty entry probes.

Rounds of untraced, an empty entry probe, gputop without lines, gputop with lines, in turn, on the same
running program, as in calls.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from probes.code import libraries
from probes.code.interpreter import installed
from tests.bench.calls import Empty, Gputop
from tests.bench.rows import Row
from tests.bench.workload import COUNTED, FRAMES, LIGHT, OWN_FRAMES, Apart, Driver, build
from tests.ebpf.interpreters import interpreter

BOUND = 4.0
ROUNDS = 15
BATCHES, CALLS = 100, 50
MINORS = (10, 11, 12, 13, 14, 15)
_SYNC, _QUERY = COUNTED["cudaStreamSynchronize"], LIGHT["cudaEventQuery"]

_PROGRAM = """#!{python}
import ctypes, os, sys, time
os.sched_setaffinity(0, {{int(sys.argv[1])}})
library = ctypes.CDLL({library!r})
functions = {{{sync}: library.cudaStreamSynchronize, {query}: library.cudaEventQuery}}
now = time.perf_counter_ns
def measure(function, batches, calls):
    found = []
    for _ in range(batches):
        start = now()
        for _ in range(calls):
            function(None)
        found.append((now() - start) / calls)
    return found
def nested(depth, *arguments):
    return nested(depth - 1, *arguments) if depth else measure(*arguments)
for line in sys.stdin:
    function, batches, calls = map(int, line.split())
    found = sorted(nested({frames} - 3, functions[function], batches, calls))
    print(found[0], found[len(found) // 2], flush=True)
"""


def rows(folder: Path) -> list[Row]:
    """The row of captured calls, the worst version with its bound, and of calls that are not."""
    path, native = build(folder)
    library = libraries.target(path)
    assert library is not None
    found: dict[int, _Added] = {}
    with Apart() as place:
        for minor in MINORS:
            found_python = interpreter(minor)
            if found_python is None:
                continue
            python = Path(found_python)
            program = folder / f"caller{minor}"
            program.write_text(
                _PROGRAM.format(python=python, library=str(path), sync=_SYNC, query=_QUERY, frames=FRAMES)
            )
            program.chmod(0o755)
            with Driver(program, place.cpu) as driver:
                found[minor] = _measure(driver, library, _interpreters(python))
        with Driver(native, place.cpu, str(FRAMES - OWN_FRAMES)) as driver:
            without_python = _measure(driver, library, [])
    unit = median(added.entry for added in found.values())
    worst = max(added.captured for added in found.values())
    texts = [
        f"3.{minor} {added.captured / unit:.2f} (+{added.captured:.0f} ns)" for minor, added in found.items()
    ]
    others = [f"3.{minor} {added.other:+.0f} ns" for minor, added in found.items()]
    others.append(f"native {without_python.other:+.0f} ns")
    return [
        Row(
            "line of a call, 16 frames / empty entry",
            worst / unit,
            "",
            BOUND,
            f"{'; '.join(texts)}; empty entry {unit:.0f} ns",
        ),
        Row(
            "native line of a call, 16 frames / empty entry",
            without_python.captured / without_python.entry,
            "",
            BOUND,
            f"+{without_python.captured:.0f} ns; empty entry {without_python.entry:.0f} ns",
        ),
        Row(
            "a call whose line is not asked for",
            median(a.other for a in found.values()),
            " ns",
            None,
            "; ".join(others),
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Added:
    """Nanoseconds that are added to a call: by an empty entry probe, by its line, by a line not requested."""

    entry: float
    captured: float
    other: float


def _interpreters(python: Path) -> list[Path]:
    return list(installed({}, [python.resolve().parent.parent], python))


def _measure(driver: Driver, library: libraries.Target, interpreters: list[Path]) -> _Added:
    empty = Empty(library)
    without, gputop = (Gputop(library, driver.pid, lines) for lines in ("off", "slow"))
    found: list[list[dict[int, float]]] = [[], [], [], []]
    for _ in range(ROUNDS):
        found[0].append(_times(driver, None))
        with empty.attached(entry_only=True):
            found[1].append(_times(driver, None))
        with without.attached():
            found[2].append(_times(driver, without))
        with gputop.knowing(interpreters):
            found[3].append(_times(driver, gputop))
    if gputop.without_line:
        raise RuntimeError(f"{gputop.without_line} calls without their line")
    for one in (without, gputop):
        one.close()
    # the fastest of all rounds: a machine that is slow for some rounds would be divided by one that is not
    fastest = [{key: min(times[key] for times in part) for key in (_SYNC, _QUERY)} for part in found]
    bare, entry, off, on = fastest
    unit = (entry[_SYNC] - bare[_SYNC] + entry[_QUERY] - bare[_QUERY]) / 2
    return _Added(unit, on[_SYNC] - off[_SYNC], on[_QUERY] - off[_QUERY])


def _times(driver: Driver, gputop: Gputop | None) -> dict[int, float]:
    times = {}
    for function in (_SYNC, _QUERY):
        driver.order(function, BATCHES, CALLS)
        times[function] = driver.answer(gputop.drain if gputop else lambda: None).fastest_ns
    return times
