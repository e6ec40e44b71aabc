"""Threads of Python that are blocked between two calls: at the line that says so, for as long as it took."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from gputop.engine.calls.stack_table import Stacks
from probes.code.layout import FIRST_STACK
from probes.schema import ALIASED, Kind, OffFlag
from probes.source import FRAMES, Sample
from replay.reader import SessionReader
from tests.ebpf.interpreters import interpreter, skip_without
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop

pytestmark = pytest.mark.ebpf
PROGRAM = PROGRAMS / "blocked_lines.py"
ROUNDS = 12
WHERE = {
    number: said[1]
    for number, text in enumerate(PROGRAM.read_text().splitlines(), 1)
    if (said := re.search(r"  # (\w+)$", text))
}
EACH_NS = 200_000  # the kernel's clocks are read with some instructions around
SLEEPS = {"feeder", "writer", "holder", "sleep", "forked"}  # of the others a busy machine may leave nothing
Blocked = dict[tuple[int, str], tuple[int, int]]  # (process, line's name) -> times, ns


def blocked(run: Recorded) -> Blocked:
    """What gputop says of the program's own file; lines without a name are ``elsewhere``."""
    reader, stacks = SessionReader(run.path), Stacks()
    for item in reader.items():
        if isinstance(item, Sample) and item.kind == FRAMES:
            stacks.consume(item.data)
    reader.close()
    found: Blocked = defaultdict(lambda: (0, 0))
    for row in run.records(Kind.OFFCPU).view(ALIASED):
        line = stacks.line(int(row["stack"]))
        if line is not None and line.file == str(PROGRAM) and line.function != "<module>":
            key = (int(row["pid"]), WHERE.get(line.line, "elsewhere"))
            times, ns = found[key]
            found[key] = times + 1, ns + int(row["duration"]) - int(row["runnable"])
    return found


@pytest.mark.parametrize("minor", [pytest.param(10, marks=pytest.mark.long), 13])
def test_each_line_was_blocked_as_long_as_it_says_itself(minor: int, tmp_path: Path) -> None:
    python = interpreter(minor)
    if python is None:
        skip_without(minor, f"Python 3.{minor}")
    run = Workshop(tmp_path, lines="slow").record(python, str(PROGRAM), str(ROUNDS))
    assert run.lost == 0
    assert len(run.said) == 2
    found = blocked(run)
    for said in run.said:
        for name, (times, ns, wall) in said["blocked"].items():
            seen, seen_ns = found.pop((said["pid"], name))
            allowed = max(0.01 * ns, EACH_NS * times)
            # where the kernel hides a wakeup, the wait for a CPU after it counts as blocked
            assert ns - allowed <= seen_ns <= wall + allowed, name
            assert seen >= times or name not in SLEEPS
    assert {name for _, name in found} <= {"elsewhere"}, "no line of the other process"


def test_only_who_blocks_between_two_calls_is_asked_and_stats_add_it_up(tmp_path: Path) -> None:
    python = interpreter(12)
    if python is None:
        skip_without(12, "Python 3.12")
    run = Workshop(tmp_path, lines="slow").record(python, str(PROGRAM), str(ROUNDS))
    off = run.records(Kind.OFFCPU)
    told = off["stack"] >= FIRST_STACK
    assert not (off["flags"][told] & (OffFlag.QUEUED | OffFlag.BIRTH)).any()
    calls = run.records(Kind.CALL)
    for row in off[told]:
        own = calls[(calls["tid"] == row["tid"]) & (calls["flags"] & 1 == 0)]
        began, left = own["t_end"] - own["duration"], row["t_end"] - row["duration"]
        assert not ((began < left) & (left < own["t_end"])).any(), (
            "inside a call that one's line is the place"
        )
    main = next(said for said in run.said if "queue" in said["blocked"])
    waits = {WHERE.get(row["line"]): row for row in run.process(main["pid"])["waits"]}
    assert {"queue", "pipe", "lock", "sleep"} <= waits.keys()
    assert "feeder" not in waits, "that thread makes no calls"
    assert waits["sleep"]["count"] >= ROUNDS
    assert waits["sleep"]["sum_ns"] == blocked(run)[main["pid"], "sleep"][1]
    times = [row["sum_ns"] for row in run.process(main["pid"])["waits"]]
    assert times == sorted(times, reverse=True)
