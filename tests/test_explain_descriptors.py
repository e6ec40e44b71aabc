"""What a thread waited for in ``read`` is reported by what its descriptor was when it waited."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.report import Finding
from gputop.analysis.evidence.blocking import UNKNOWN, Descriptors, Wait
from probes.schema import OffFlag
from probes.source import FILES, Sample
from tests.items import START
from tests.programs import FSYNC, LAUNCH, MAIN, SYNC, US, Program, started

READ, IRQ, FILE = 0, int(OffFlag.WAKER_IRQ), 7  # the system call's number; woken by a device; a descriptor
LOG, DATA = "file:/srv/log.txt", "file:/srv/data.bin"


def reading(
    *told: tuple[int, str], flags: int = IRQ, op: int = READ, steps: int = 40, **more: int
) -> Program:
    """Each step the launching thread waits for 7 ms in a system call that takes descriptor 7.

    ``told``: from which step on it is what.
    """
    program = started()
    program.length_us = steps * 12_000 + 100
    for step in range(steps):
        begin = step * 12_000
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 4000)
        program.off(begin + 4100, begin + 11_100, op=op, argument=FILE, flags=flags, **more)
    program.call(LAUNCH, steps * 12_000, steps * 12_000 + 10)
    for step, what in told:
        data = {"pid": [MAIN], "fd": [FILE], "what": [what]}
        program.samples.append(Sample(FILES, START + step * 12_000 * US, data))
    return program


def finding(program: Program) -> Finding | None:
    found = program.report().findings
    return found[0] if found else None


def test_a_file_is_the_disk_and_is_named() -> None:
    found = finding(reading((0, DATA)))
    assert found is not None
    assert found.cause == "C18"
    assert found.chain[-1].text.endswith("waited for the disk")
    assert "waited for file /srv/data.bin 100 %" in found.evidence


@pytest.mark.parametrize(
    ("what", "title", "level"),
    [
        ("socket", "waits for a peer that is not watched", "strong"),
        ("socket:remote", "waits for another machine, over the network", "proved"),
    ],
)
def test_another_machine_is_named_where_the_address_says_so(what: str, title: str, level: str) -> None:
    found = finding(reading((0, what)))
    assert found is not None
    assert (found.cause, found.title) == ("C19", title)
    assert (found.idle_level, found.name_level, found.level) == ("proved", level, level)


@pytest.mark.parametrize(
    ("what", "level"), [("socket:local", "proved"), ("socket", "strong"), ("file:/srv/data.bin", "strong")]
)
def test_who_sends_over_the_loopback_device_delivers_it_in_a_softirq_of_its_own(
    what: str, level: str
) -> None:
    program = reading((0, what), flags=int(OffFlag.WAKER_SOFTIRQ), waker_pid=77, waker_tid=77)
    found = finding(program)
    assert found is not None
    assert (found.cause, found.name_level) == ("C19", level)
    assert ("(77)" in found.title) == (what == "socket:local")


@pytest.mark.parametrize("what", ["pipe", "eventfd", "device:/dev/pts/3", "device:/dev/tty1"])
def test_what_somebody_else_gives_is_neither_disk_nor_network(what: str) -> None:
    program = reading((0, what))
    (found,) = program.report().findings
    assert (found.cause, found.per_step_ns) == ("C03", 1_000_000), "but for 7 of 8 ms that nobody explains"
    assert set(program.evidence().slices["wait"].tolist()) == {Wait.DATA}


def test_a_timer_is_sleep() -> None:
    assert set(reading((0, "anon:timerfd")).evidence().slices["wait"].tolist()) == {Wait.SLEEP}


def test_a_file_whose_end_no_device_reported_may_be_another_thread_s_work() -> None:
    slices = reading((0, DATA), flags=0).evidence().slices
    assert set(slices["wait"].tolist()) == {Wait.READ}


def test_an_unreported_descriptor_is_judged_by_the_system_call_alone() -> None:
    found = finding(reading())
    assert found is not None
    assert found.cause == "C18"
    assert not any(text.startswith("waited for") for text in found.evidence)


def test_a_system_call_of_the_disk_names_its_file_too() -> None:
    found = finding(reading((0, LOG), op=FSYNC))
    assert found is not None
    assert "waited for file /srv/log.txt 100 %" in found.evidence


def test_a_table_keeps_what_numbers_stand_for_when_a_descriptor_becomes_something_else() -> None:
    table = Descriptors("x86_64")
    slices = reading().evidence().slices
    assert set(table.of(slices).tolist()) == {UNKNOWN}
    table.consume({"pid": [MAIN], "fd": [FILE], "what": [LOG]})
    before = table.of(slices)
    later = table.copy()
    later.consume({"pid": [MAIN], "fd": [FILE], "what": ["pipe"]})
    assert {table.names[one] for one in before.tolist()} == {LOG}
    assert {later.names[one] for one in later.of(slices).tolist()} == {"pipe"}
    assert {later.names[one] for one in before.tolist()} == {LOG}
    assert table.of(slices).tolist() == before.tolist()
