"""Page faults are reported as they grow, add up wherever a recording is cut, else they are unknown."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gputop.engine.engine import Engine
from gputop.engine.frame_json import frame_to_json
from gputop.engine.session_totals import collect
from gputop.engine.stats_output import stats_to_json, stats_to_text
from gputop.engine.tally import Tally, tally
from gputop.engine.threads.fault_sums import Faults
from gputop.serve.clients.owners import Owners
from gputop.serve.clients.user_view import UserView
from probes.observe.plan import LivePlan
from probes.observe.procfs_source import ProcfsSource
from probes.proc.page_faults import LOOK_NS, PageFaults
from probes.proc.procfs import descendants
from probes.schema import ExitFlag, Kind
from probes.source import FAULTS, Item, Sample
from tests import items
from tests.items import HEADER, MS, SECOND, START
from tests.json_page import assert_valid

END = START + 10 * SECOND


def faults(time_ns: int, *rows: tuple[int, int, int, int]) -> Sample:
    """Rows of process, thread (0: all of it), minor, major."""
    columns = zip(*rows, strict=True)
    return Sample(
        FAULTS, time_ns, dict(zip(("pid", "tid", "minor", "major"), map(list, columns), strict=True))
    )


def recording() -> list[Item]:
    """Process 10 has faults in two seconds, 11 is known to have none, of 12 nothing is reported."""
    return [
        items.apis(),
        *(items.process(pid) for pid in (10, 11, 12)),
        items.off(START + 100 * MS, MS, 0, tid=10),
        items.off(START + 100 * MS, MS, 0, tid=15),
        faults(START, (10, 0, 0, 0), (10, 10, 0, 0), (11, 0, 0, 0)),
        items.mark(1, START + SECOND),
        faults(START + SECOND, (10, 0, 700, 2), (10, 10, 500, 2)),
        items.mark(2, START + 2 * SECOND),
        faults(START + 2 * SECOND, (10, 0, 60, 1), (10, 10, 60, 1)),
        items.mark(3, START + 3 * SECOND),
    ]


def process(pid: int, told: list[Item]) -> dict[str, Any]:
    document = stats_to_json(collect(HEADER, told))
    assert_valid(document)
    (found,) = [row for row in document["processes"] if row["pid"] == pid]
    return found


def test_totals_are_what_was_reported_of_the_process_and_of_its_threads() -> None:
    found = process(10, recording())
    assert found["faults"] == {"minor": 760, "major": 3}
    main, other = found["threads"]
    assert main["faults"] == {"minor": 560, "major": 3}
    assert "faults" not in other, "nothing was told of this thread"


def test_none_is_not_unknown() -> None:
    assert process(11, recording())["faults"] == {"minor": 0, "major": 0}
    assert "faults" not in process(12, recording())


def test_the_text_has_columns_for_them_only_where_they_are_known() -> None:
    text = stats_to_text(collect(HEADER, recording()), None)
    assert "MINOR  MAJOR" in text
    (whole,) = [line.split() for line in text.splitlines() if line.startswith("  all threads")]
    assert whole[-2:] == ["760", "3"]
    silent = [item for item in recording() if not isinstance(item, Sample) or item.kind != FAULTS]
    assert "MAJOR" not in stats_to_text(collect(HEADER, silent), None)


def test_they_add_up_wherever_a_recording_is_cut() -> None:
    for cut in range(11):
        told = recording()
        whole = Tally()
        for part in (told[:cut], told[cut:]):
            whole.merge(tally(part).payload())
        assert whole.faults.sums == tally(told).faults.sums
        assert whole.faults.sums[10, 0] == (760, 3)


def test_a_frame_has_those_of_its_window_and_nothing_where_none_were_reported() -> None:
    engine = Engine(HEADER)
    frames = [engine.frame() for item in recording() if engine.feed(item)]
    rows = [{row.pid: row.faults for row in frame.processes} for frame in frames]
    assert rows[0] == {10: Faults(0, 0), 11: Faults(0, 0), 12: None}
    assert rows[2][10] == Faults(760, 3)
    assert rows[2][11] is None
    shown = {row["pid"]: row for row in frame_to_json(frames[2])["processes"]}
    assert shown[10]["faults"] == {"minor": 760, "major": 3}
    assert "faults" not in shown[12]


def test_columns_of_different_lengths_are_cut_to_the_shortest() -> None:
    damaged = Sample(FAULTS, START, {"pid": [10, 10], "tid": [0], "minor": [5, 6], "major": [1, 1]})
    assert tally([damaged]).faults.sums == {(10, 0): (5, 1)}


def test_a_user_is_told_of_own_processes_only() -> None:
    owners = Owners()
    owners.consume(items.process(10, uid=1000))
    owners.consume(items.process(11, uid=1001))
    (shown,) = UserView(1000, owners).sample(faults(START, (10, 0, 7, 1), (11, 0, 9, 2)))
    assert shown.data == {"pid": [10], "tid": [0], "minor": [7], "major": [1]}


# -- what asks /proc --------------------------------------------------------------------------------


def rows(told: list[Sample]) -> dict[tuple[int, int], tuple[int, int]]:
    return tally([*told]).faults.sums


def test_a_process_that_was_there_before_is_counted_from_the_first_look_on() -> None:
    mine = os.getpid()
    watch = PageFaults()
    watch.add(mine)
    (first,) = watch.samples([mine], START)
    assert rows([first])[mine, 0][0] < 50, "what it had counted before is not told"
    memory = mmap.mmap(-1, 8 << 20)
    memory.write(bytes(8 << 20))
    assert list(watch.samples([mine], START + LOOK_NS - 1)) == [], "nobody looks twice in a second"
    (second,) = watch.samples([mine], START + LOOK_NS)
    assert rows([second])[mine, 0][0] >= 2, "huge pages or small ones"
    memory.close()


def test_an_end_shows_what_was_not_looked_at() -> None:
    """A process that is born and ends between two looks, with two threads."""
    watch, dead = PageFaults(), int(ExitFlag.GROUP_DEAD)
    watch.notice(items.event(Kind.FORK, START, pid=70, tid=70))
    watch.notice(items.event(Kind.FORK, START, pid=70, tid=71))
    watch.notice(items.event(Kind.EXIT, START, pid=70, tid=71, minor=40, major=4))
    watch.notice(items.event(Kind.EXIT, START, pid=70, tid=70, minor=100, major=1, flags=dead))
    told = list(watch.samples([], START))
    assert rows(told) == {(70, 71): (40, 4), (70, 70): (100, 1), (70, 0): (140, 5)}
    assert list(watch.samples([], END, last=True)) == []


def test_an_end_shows_the_rest_of_what_was_looked_at() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        pid, watch, dead = child.pid, PageFaults(), int(ExitFlag.GROUP_DEAD)
        watch.notice(items.event(Kind.FORK, START, pid=pid, tid=pid))
        before = rows(list(watch.samples([pid], START)))[pid, 0]
        last = items.event(Kind.EXIT, START, pid=pid, tid=pid, minor=1_000_000, major=9, flags=dead)
        watch.notice(last)
        after = rows(list(watch.samples([], END)))[pid, 0]
        child.communicate(b"\n")
    assert before[0] > 0
    assert (before[0] + after[0], before[1] + after[1]) == (1_000_000, 9)


def test_a_number_that_goes_to_a_new_process_begins_anew() -> None:
    watch, dead = PageFaults(), int(ExitFlag.GROUP_DEAD)
    for minor in (500, 20):
        watch.notice(items.event(Kind.FORK, START, pid=70, tid=70))
        watch.notice(items.event(Kind.EXIT, START, pid=70, tid=70, minor=minor, flags=dead))
    assert rows(list(watch.samples([], START)))[70, 0] == (520, 0)


def test_without_ebpf_a_process_counts_from_its_birth_where_that_was_seen(tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = (
        "import resource, sys\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "memory = bytearray(4 << 20)\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "open(sys.argv[1], 'w').write(f'[{used.ru_minflt}, {used.ru_majflt}]')\n"
        "input()\n"
    )
    command = ["sh", "-c", 'read go; "$@"; true', "sh", sys.executable, "-c", script, str(said)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0) as shell:
        assert shell.stdin is not None
        source = ProcfsSource(LivePlan((shell.pid,)), "no eBPF in this test")
        source.start()
        time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # births are told by the tick: this one is behind the start
        shell.stdin.write(b"go\n")
        told: list[Sample] = []
        deadline = time.monotonic() + 60
        for item in source.items():
            assert isinstance(item, Sample)
            told.append(item)
            if (said.exists() and said.read_text() and len(source.alive) == 2) or time.monotonic() > deadline:
                source.close()  # there is a last look
        (pid,) = descendants([shell.pid])
        shell.stdin.write(b"end\n")
    minor, major = json.loads(said.read_text())
    seen = rows([one for one in told if one.kind == FAULTS])[pid, 0]
    assert minor <= seen[0] <= minor + 100, "a few when it waits for input"
    assert major <= seen[1] <= major + 5
