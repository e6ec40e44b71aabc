"""What a thread waited for: the system call, its first argument, and what the file descriptor was."""

from __future__ import annotations

import platform
from typing import Any

import pytest

from probes.proc import syscalls
from probes.schema import ALIASED, Kind
from probes.source import FILES, OPEN, Sample
from replay.reader import SessionReader
from tests.ebpf.recording import Recorded, Workshop

pytestmark = [pytest.mark.ebpf, pytest.mark.timed]  # what is closed soon is looked at in time
MS = 1_000_000
MACHINE = platform.machine()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("waits")
    return Workshop(folder, "multi").python("descriptors.py", str(folder))


def samples(run: Recorded, kind: str) -> list[dict[str, Any]]:
    """The data of all samples of a kind, in their order."""
    reader = SessionReader(run.path)
    found = [item.data for item in reader.items() if isinstance(item, Sample) and item.kind == kind]
    reader.close()
    return found


def test_long_waits_name_the_call_and_its_argument(run: Recorded) -> None:
    main = [line for line in run.said if "open" not in line]
    slices = run.records(Kind.OFFCPU).view(ALIASED)
    seen = [
        (syscalls.name(int(row["op"]), MACHINE), int(row["argument"]))
        for row in slices[(slices["tid"] == main[0]["tid"]) & (slices["duration"] > 20 * MS)]
    ]
    asked = {(line["call"], line["argument"]) for line in main}
    assert [pair for pair in seen if pair in asked] == [(line["call"], line["argument"]) for line in main]


def test_what_each_descriptor_was_is_told_also_when_its_number_is_used_again(run: Recorded) -> None:
    told = [
        row for data in samples(run, FILES) for row in zip(data["pid"], data["fd"], data["what"], strict=True)
    ]
    asked = [(line["pid"], line["argument"], line["what"]) for line in run.said if line["what"]]
    of_number: dict[int, list[str]] = {}
    for _, descriptor, what in asked:
        of_number.setdefault(descriptor, []).append(what)
    assert max(map(len, of_number.values())) == 2
    for descriptor, kinds in of_number.items():
        assert [what for _, number, what in told if number == descriptor] == kinds


def test_a_thread_that_still_waits_at_the_mark_says_for_what(run: Recorded) -> None:
    (last,) = [line for line in run.said if "open" in line]
    waiting = set()
    for data in samples(run, OPEN):
        for row in zip(data["pid"], data["syscall"], data["argument"], strict=True):
            waiting.add((row[0], syscalls.name(row[1], MACHINE), row[2]))
    assert (last["pid"], "read", last["argument"]) in waiting
