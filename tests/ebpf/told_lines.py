"""Lines that a program counted, and those that gputop tells of it."""

from __future__ import annotations

from collections import Counter

from tests.conftest import skip_or_fail
from tests.ebpf.interpreters import interpreter
from tests.ebpf.recording import Recorded

READY_S = 0.3  # after gputop has started, the interpreter of a program that runs is known


Line = tuple[str, int, str]


def python(minor: int) -> str:
    found = interpreter(minor)
    if found is None:
        skip_or_fail(f"no Python 3.{minor} on this machine")
    return found


def counted(lines: list[list[object]]) -> Counter[Line]:
    return Counter({(str(file), int(str(line)), str(name)): count for file, line, name, count in lines})  # type: ignore[misc]


def seen(process: dict[str, object]) -> Counter[Line]:
    """What gputop says of a process; the runtime's calls of one kind only."""
    found: Counter[Line] = Counter()
    for row in process["lines"]:  # type: ignore[attr-defined]
        assert row["api"] == "cudaDeviceSynchronize"
        found[row["file"], row["line"], row["function"]] += row["count"]
    return found


def assert_all_right(run: Recorded, processes: int) -> None:
    assert run.lost == 0
    assert len(run.said) == processes
    for line in run.said:
        process = run.process(line["pid"])
        assert seen(process) == counted(line["lines"])
        assert process["unknown_lines"] == 0
