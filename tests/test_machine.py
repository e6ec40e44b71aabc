"""What the machine lost time by is what the kernel counted meanwhile; what it does not count is unknown."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from gputop.engine.session_totals import collect
from gputop.engine.stats_output import stats_to_json, stats_to_text
from gputop.engine.tally import Tally, tally
from gputop.serve.clients.owners import Owners
from gputop.serve.clients.user_view import UserView
from probes.proc.machine_losses import LOOK_NS, MachineEvents
from probes.source import MACHINE, Item, Sample
from tests import items
from tests.items import HEADER, SECOND, START
from tests.json_page import assert_valid
from tests.waiting import wait_until

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def procfs(folder: Path, steal: int, some: int, full: int, again: int) -> Path:
    """A /proc with these counters: ticks, microseconds, microseconds, segments."""
    for part in ("pressure", "net"):
        (folder / part).mkdir(exist_ok=True)
    (folder / "stat").write_text(f"cpu  1 2 3 4 5 6 7 {steal} 9 10\ncpu0 1 2 3 4 5 6 7 99 9 10\n")
    pressure = [
        f"{which} avg10=0.01 avg60=0 avg300=0 total={us}" for which, us in (("some", some), ("full", full))
    ]
    (folder / "pressure" / "memory").write_text("\n".join(pressure) + "\n")
    (folder / "net" / "snmp").write_text(
        f"Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoMin RetransSegs InErrs\nTcp: 200 {again} 3\n"
    )
    return folder


def test_only_what_grew_while_it_looked_is_reported(tmp_path: Path) -> None:
    seen = MachineEvents(procfs(tmp_path, 100, 5_000, 1_000, 40))
    procfs(tmp_path, 107, 5_200, 1_001, 43)
    (told,) = seen.samples(START)
    assert told.data == {
        "steal_ns": 7 * TICK_NS,
        "memory_some_ns": 200_000,
        "memory_full_ns": 1_000,
        "tcp_retransmits": 3,
    }
    procfs(tmp_path, 108, 5_200, 1_001, 43)
    assert list(seen.samples(START + LOOK_NS - 1)) == []
    (later,) = seen.samples(START + LOOK_NS)
    assert later.data["steal_ns"] == TICK_NS
    assert list(seen.samples(START + 2 * LOOK_NS)) == [], "nothing grew"
    procfs(tmp_path, 110, 5_200, 1_001, 43)
    (end,) = seen.samples(START + 2 * LOOK_NS + 1, last=True)
    assert end.data["steal_ns"] == 2 * TICK_NS


def test_none_at_all_is_reported_once(tmp_path: Path) -> None:
    seen = MachineEvents(procfs(tmp_path, 100, 5_000, 1_000, 40))
    (told,) = seen.samples(START)
    assert set(told.data.values()) == {0}


@pytest.mark.parametrize("gone", ["pressure/memory", "net/snmp", "stat"])
def test_what_this_kernel_does_not_count_has_no_key_and_is_null(tmp_path: Path, gone: str) -> None:
    (procfs(tmp_path, 100, 5_000, 1_000, 40) / gone).unlink()
    (told,) = MachineEvents(tmp_path).samples(START)
    missing = {
        "pressure/memory": {"memory_some_ns", "memory_full_ns"},
        "net/snmp": {"tcp_retransmits"},
        "stat": {"steal_ns"},
    }[gone]
    stats = stats_to_json(collect(HEADER, [told, items.mark(1, START + SECOND)]))
    assert_valid(stats)
    assert {name for name, value in stats["machine"].items() if value is None} == missing
    assert told.data.keys().isdisjoint(missing)


@pytest.mark.slow
def test_segments_that_were_sent_again_are_those_that_the_kernel_counted() -> None:
    """A listener whose queue is full lets others knock again: after a second."""
    seen, before = MachineEvents(), sent_again()
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(6):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        wait_until(lambda: sent_again() - before >= 3, "three packets that are sent again")
        least = sent_again() - before
        (told,) = seen.samples(START, last=True)
    assert 3 <= least <= told.data["tcp_retransmits"] <= sent_again() - before


def sent_again() -> int:
    """The kernel's count."""
    names, values = (
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line[:4] == "Tcp:"
    )
    return int(values[names.index("RetransSegs")])


def recording() -> list[Item]:
    first = {"steal_ns": 5, "memory_some_ns": 2 * SECOND, "memory_full_ns": 0, "tcp_retransmits": 0}
    later = {"steal_ns": 3 * SECOND - 5, "tcp_retransmits": 17}
    return [
        items.apis(),
        Sample(MACHINE, START, first),
        items.mark(1, START + SECOND),
        Sample(MACHINE, START + SECOND, later),
        items.mark(2, START + 2 * SECOND),
    ]


def test_sums_are_the_same_wherever_a_recording_is_cut() -> None:
    for cut in range(6):
        whole = Tally()
        for part in (recording()[:cut], recording()[cut:]):
            whole.merge(tally(part).payload())
        assert whole.machine.sums == tally(recording()).machine.sums
        assert whole.machine.sums["steal_ns"] == 3 * SECOND


def test_stats_have_a_line_of_what_was_and_nothing_where_nothing_was_reported() -> None:
    text = stats_to_text(collect(HEADER, recording()), None)
    assert (
        "machine: 3.00s of its CPUs stolen by the hypervisor, short of memory for 2.00s (no task could run: "
        "0ns), 17 TCP segments sent again"
    ) in text
    silent = collect(
        HEADER, [item for item in recording() if not isinstance(item, Sample) or item.kind != MACHINE]
    )
    assert "machine" not in stats_to_json(silent)
    assert "machine" not in stats_to_text(silent, None)


def test_every_user_may_know_it_as_proc_shows_it() -> None:
    sample = Sample(MACHINE, START, {"steal_ns": 1})
    assert list(UserView(1000, Owners()).sample(sample)) == [sample]
