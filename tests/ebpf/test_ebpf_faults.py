"""Page faults of processes and threads are those that the kernel tells the program itself by getrusage(2)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probes.source import FAULTS, Sample
from replay.reader import SessionReader
from tests.ebpf.recording import Recorded, Workshop, compile_program
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf
PAGES = 256  # of a file that is read from the disk, a page a fault
ENDING = 24  # faults between the program's last word and its end: it writes that word, and unwinds


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("faults")
    program, file = compile_program("faults.c", folder), folder / "pages"
    file.write_bytes(os.urandom(PAGES << 12))
    os.sync()
    # a child of a shell is watched from its birth on, as getrusage(2) counts
    return Workshop(folder).record("sh", "-c", f"{program} {file} {PAGES}; true")


def said(run: Recorded, what: str) -> list[dict[str, Any]]:
    return [line for line in run.said if line["what"] == what]


def is_what_the_kernel_told(seen: dict[str, int], line: dict[str, Any]) -> None:
    print(seen, line)
    assert line["minor"] <= seen["minor"] <= line["minor"] + ENDING
    assert line["major"] <= seen["major"] <= line["major"] + ENDING


def test_a_process_has_the_faults_of_all_its_threads(run: Recorded) -> None:
    (line,) = said(run, "process")
    assert line["minor"] > 4000 + 800 + 1200, "the program did not do what the case is about"
    is_what_the_kernel_told(run.process(line["pid"])["faults"], line)


def test_each_thread_has_its_own_faults(run: Recorded) -> None:
    for line in said(run, "thread"):
        is_what_the_kernel_told(run.thread(line["pid"], line["tid"])["faults"], line)


def test_pages_that_had_to_be_read_from_the_disk_are_major_faults(run: Recorded) -> None:
    reader = min(said(run, "thread"), key=lambda line: int(line["minor"]))
    assert run.thread(reader["pid"], reader["tid"])["faults"]["major"] > PAGES // 2


def test_a_child_that_lived_shorter_than_any_look_has_its_faults_too(run: Recorded) -> None:
    (line,) = said(run, "child")
    seen = run.process(line["pid"])["faults"]
    # wait4 tells it as of its end, and a few faults lie behind the moment at which a probe can still look
    assert 0 <= line["minor"] - seen["minor"] <= ENDING
    assert seen["major"] == line["major"]


def test_a_process_that_ran_before_counts_from_then_on(tmp_path: Path) -> None:
    script = (
        "import sys, mmap, resource, time\n"
        "def touch():\n"
        "    m = mmap.mmap(-1, 4096 * 2000)\n"
        "    m.madvise(mmap.MADV_NOHUGEPAGE)\n"
        "    for page in range(2000): m[page * 4096] = 1\n"
        "keep = [touch()]\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "open(sys.argv[1], 'w').close()\n"
        "sys.stdin.readline()\n"
        "keep.append(touch())\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "print(before, after, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    ready, workshop = tmp_path / "ready", Workshop(tmp_path)
    command = [sys.executable, "-c", script, str(ready)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        wait_until(ready.exists, "the program")
        recorder = workshop.start(["--pid", str(program.pid)], flags=())
        wait_until(lambda: workshop.file.exists() and workshop.file.stat().st_size > 0, "the recording")
        program.stdin.write("\n")
        program.stdin.flush()
        before, after = map(int, program.stdout.readline().split())
        program.stdin.write("\n")
        program.stdin.flush()
        program.wait()
        seen = workshop.finish(recorder).process(program.pid)["faults"]
    print(seen, before, after)
    # it was watched a moment after it looked, and an interpreter that ends touches pages, too
    assert after - before - 8 <= seen["minor"] <= after - before + 300
    assert seen["minor"] < before


def test_what_does_not_change_is_not_reported_again(tmp_path: Path) -> None:
    run = Workshop(tmp_path).record("sleep", "4", flags=("--rate", "10"))
    reader = SessionReader(run.path)
    told = [item for item in reader.items() if isinstance(item, Sample) and item.kind == FAULTS]
    reader.close()
    assert len(told) <= 3, "its start and its end, and where a second ended in between"
    assert len(reader.marks) > 3 * len(told)
