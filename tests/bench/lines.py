"""What the line of Python costs, for a call under 16 frames, in empty entry probes.

Rounds of untraced, an empty entry probe, gputop without lines, gputop with lines, in turn, on the same
running program, as in calls.py.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from probes import libraries
from probes.frames.interpreter import installed
from tests.bench.calls import Empty, Gputop
from tests.bench.rows import Row
from tests.bench.workload import COUNTED, LIGHT, Apart, Driver, build

BOUND = 4.0
FRAMES = 16
ROUNDS = 5
BATCHES, CALLS = 300, 100
MINORS = (10, 11, 12, 13)
_UNBOUNDED = (10,)  # its frames are objects: each is a read of its own
_SYNC, _LAUNCH = COUNTED["cudaStreamSynchronize"], LIGHT["cudaEventQuery"]

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


def _python(minor: int) -> Path | None:
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [*sorted(versions.glob(f"3.{minor}.*/bin/python3")), shutil.which(f"python3.{minor}")]
    return next((Path(path) for path in found if path), None)


def rows(folder: Path) -> list[Row]:
    """The row of captured calls, the worst version with its bound, and of calls that are not."""
    path, _ = build(folder)
    library = libraries.target(path)
    assert library is not None
    captured, others = {}, {}
    with Apart() as place:
        for minor in MINORS:
            python = _python(minor)
            if python is None:
                continue
            program = folder / f"caller{minor}"
            program.write_text(
                _PROGRAM.format(python=python, library=str(path), sync=_SYNC, query=_LAUNCH, frames=FRAMES)
            )
            program.chmod(0o755)
            with Driver(program, place.cpu) as driver:
                captured[minor], others[minor] = _measure(driver, library, python)
    bounded = [ratio for minor, (ratio, _) in captured.items() if minor not in _UNBOUNDED]
    texts = [f"3.{minor} {ratio:.2f} (+{ns:.0f} ns)" for minor, (ratio, ns) in captured.items()]
    query = [f"3.{minor} {ns:+.0f} ns" for minor, (_, ns) in others.items()]
    return [
        Row("line of a call, 16 frames / empty entry", max(bounded), "", BOUND, "; ".join(texts)),
        Row(
            "line that is not asked for / empty entry",
            max(ratio for ratio, _ in others.values()),
            "",
            None,
            "; ".join(query),
        ),
    ]


def _measure(
    driver: Driver, library: libraries.Target, python: Path
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(ratio, ns) that a line adds to a call that asks for it, and to one that does not."""
    empty = Empty(library)
    without, gputop = (Gputop(library, driver.pid, lines) for lines in ("off", "costly"))
    interpreters = list(installed({}, [python.resolve().parent.parent], python))
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
    fastest = [{key: min(times[key] for times in part) for key in (_SYNC, _LAUNCH)} for part in found]
    bare, entry, off, on = fastest
    added = {key: on[key] - off[key] for key in (_SYNC, _LAUNCH)}
    unit = (entry[_SYNC] - bare[_SYNC] + entry[_LAUNCH] - bare[_LAUNCH]) / 2
    return (added[_SYNC] / unit, added[_SYNC]), (added[_LAUNCH] / unit, added[_LAUNCH])


def _times(driver: Driver, gputop: Gputop | None) -> dict[int, float]:
    times = {}
    for function in (_SYNC, _LAUNCH):
        driver.order(function, BATCHES, CALLS)
        times[function] = driver.answer(gputop.drain if gputop else lambda: None).fastest_ns
    return times
