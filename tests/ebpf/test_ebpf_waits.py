"""What a thread waited for: the system call, its first argument, and what the file descriptor was."""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np
import pytest

from probes.proc import syscalls
from probes.schema import ALIASED, Kind, OffFlag, Records
from probes.source import FILES, MARK, OPEN
from tests.ebpf import growing
from tests.ebpf.growing import marks
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop
from tests.waiting import wait_until

pytestmark = [pytest.mark.ebpf, pytest.mark.timed]
MS = 1_000_000
MACHINE = platform.machine()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The program goes on when gputop has looked: what it has closed by then nobody can tell."""
    folder = tmp_path_factory.mktemp("waits")
    workshop = Workshop(folder, "multi")
    recorder = workshop.start(["--", sys.executable, str(PROGRAMS / "descriptors.py"), str(folder)])
    try:
        wait_until(lambda: "futex" in [line["call"] for line in workshop.said()], "the first waits")
        wait_until(lambda: len(told(workshop)) >= len(named(workshop.said())), "what the descriptors were")
        seen = marks(workshop.file)
        wait_until(lambda: marks(workshop.file) >= seen + 2, "gputop to ask for none of them any more")
        (folder / "asked").touch()
        wait_until(lambda: any("open" in line for line in workshop.said()), "the other waits")
        wait_until(lambda: len(told(workshop)) >= len(named(workshop.said())), "what the new ones were")
        seen = marks(workshop.file)
        wait_until(lambda: marks(workshop.file) >= seen + 1, "the mark that finds a thread waiting")
    finally:
        (folder / "asked").touch()
        (folder / "end").touch()
        run = workshop.finish(recorder)
    return run


def named(said: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The process and the number of each descriptor that the program says it has waited for."""
    return [(line["pid"], line["argument"]) for line in said if line["what"]]


def told(workshop: Workshop) -> list[tuple[int, int]]:
    """Those of them that gputop has told so far."""
    found = [one.data for one in growing.samples(workshop.file) if one.kind == FILES]
    pairs = (pair for data in found for pair in zip(data["pid"], data["fd"], strict=True))
    asked = set(named(workshop.said()))
    return [pair for pair in pairs if pair in asked]


def waits(run: Recorded) -> Records:
    """When the main thread was off its CPU for long, and not for want of one."""
    slices = run.records(Kind.OFFCPU).view(ALIASED)
    slices = slices[slices["flags"] & OffFlag.QUEUED == 0]
    return slices[(slices["tid"] == run.said[0]["tid"]) & (slices["duration"] > 20 * MS)]


def test_long_waits_name_the_call_and_its_argument(run: Recorded) -> None:
    main = [line for line in run.said if "open" not in line]
    seen = [(syscalls.name(int(row["op"]), MACHINE), int(row["argument"])) for row in waits(run)]
    asked = {(line["call"], line["argument"]) for line in main}
    assert [pair for pair in seen if pair in asked] == [(line["call"], line["argument"]) for line in main]


def test_what_each_descriptor_was_is_reported_also_when_its_number_is_used_again(run: Recorded) -> None:
    told = [
        row
        for sample in run.samples(FILES)
        for row in zip(sample.data["pid"], sample.data["fd"], sample.data["what"], strict=True)
    ]
    asked = [(line["pid"], line["argument"], line["what"]) for line in run.said if line["what"]]
    of_number: dict[int, list[str]] = {}
    for _, descriptor, what in asked:
        of_number.setdefault(descriptor, []).append(what)
    assert max(map(len, of_number.values())) == 2
    for descriptor, kinds in of_number.items():
        assert [what for _, number, what in told if number == descriptor] == kinds


def test_it_is_reported_at_one_of_the_next_marks(run: Recorded) -> None:
    """By gputop's own clock: of what a program closes soon nobody could tell it later."""
    marks_ns = np.array([sample.time_ns for sample in run.samples(MARK)])
    told_ns: dict[int, list[int]] = {}
    for sample in run.samples(FILES):
        for pid, number in zip(sample.data["pid"], sample.data["fd"], strict=True):
            if (pid, number) in named(run.said):
                told_ns.setdefault(number, []).append(sample.time_ns)
    begun = [(int(row["argument"]), int(row["t_end"] - row["duration"])) for row in waits(run)]
    found = [
        int(np.sum((marks_ns > begin_ns) & (marks_ns <= told_ns[number].pop(0))))
        for number, begin_ns in begun
        if number in told_ns
    ]
    assert len(found) == len([line for line in run.said if line["what"] and "open" not in line])
    assert max(found) <= 4, "a second of the recorder's, of a machine that is not slow"


def test_a_thread_that_still_waits_at_the_mark_says_for_what(run: Recorded) -> None:
    (last,) = [line for line in run.said if "open" in line]
    waiting = set()
    for sample in run.samples(OPEN):
        for row in zip(sample.data["pid"], sample.data["syscall"], sample.data["argument"], strict=True):
            waiting.add((row[0], syscalls.name(row[1], MACHINE), row[2]))
    assert (last["pid"], "read", last["argument"]) in waiting
