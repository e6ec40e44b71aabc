"""The class of trouble: each from a made-up program, and what a busy GPU is busy with."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.report import Diagnosis, DiagnosisKind, Report
from gputop.analysis.build import explain
from gputop.analysis.causes import CAUSES
from gputop.analysis.findings.diagnosis import TITLES
from probes.schema import Kind as RecordKind
from probes.schema import OffFlag
from probes.source import FRAMES, Sample
from tests import items
from tests.cause_stories import STORIES, report_of_cause
from tests.each_recording import REPORTS
from tests.items import START
from tests.programs import FUTEX, LAUNCH, MAIN, NANOSLEEP, POLL, SYNC, US, Program, started
from tests.simulated import SECOND, Deed, Machine, launches

WORKER, STRANGER = 20, 77
STEP_US, STEPS = 12_000, 100
ASKED = int(OffFlag.WAKER_IRQ)
ACCEPT, ACCEPT4 = 43, 288  # x86-64
KINDS = {cause.number: cause.kind for cause in CAUSES if cause.kind is not None}


def diagnosed(report: Report) -> Diagnosis:
    """The diagnosis of a program that has one."""
    assert report.diagnosis is not None
    return report.diagnosis


def seen(deeds: list[Deed]) -> Report:
    """A simulated program with NVML beside it."""
    machine = Machine()
    machine.run([*deeds, Deed("sync")])
    machine.utilization(SECOND // 6)
    return explain(machine.finished().evidence())


@REPORTS
@pytest.mark.parametrize("cause", [cause for cause in STORIES if cause in KINDS])
def test_a_program_of_one_cause_is_of_its_class(cause: str) -> None:
    diagnosis = diagnosed(report_of_cause(cause))
    assert diagnosis.kind == str(KINDS[cause])
    assert diagnosis.title == TITLES[KINDS[cause]]


def test_each_class_has_its_words() -> None:
    assert set(TITLES) == set(DiagnosisKind)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        pytest.param([Deed("host", 9_000), Deed("send", size=1 << 20), *launches([500] * 4)], "input"),
        pytest.param([Deed("host", 4_000), *launches([1_000] * 4), Deed("read")], "sync"),
        pytest.param([one for us in [4] * 40 for one in (Deed("launch", us), Deed("host", 80))], "launch"),
        pytest.param([Deed("host", 5_000), *launches([500] * 4)], "host"),
        pytest.param([Deed("send", size=64 << 20), *launches([500] * 4)], "copy"),
        pytest.param([Deed("send", size=2_048), Deed("host", 10)] * 40 + launches([500] * 2), "copy"),
    ],
)
def test_loops_that_nobody_waits_for_are_distinguished(step: list[Deed], kind: str) -> None:
    machine = Machine()
    while machine.length < 3 * SECOND:
        machine.run(step)
    machine.utilization(SECOND // 6)
    report = explain(machine.finished().evidence())
    diagnosis = diagnosed(report)
    assert diagnosis.kind == kind
    assert diagnosis.lead == 0
    assert report.verdict.lower().startswith(diagnosis.title.split(" (")[0])
    assert "%" in diagnosis.evidence[0]


def requests(syscall: int, times: int = 1, **woken: int) -> Program:
    """A program that works for 4 ms and then sleeps for 8 ms, until it is woken; so often in that time."""
    program = started()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 4_000)
        parts = times + begin // STEP_US % 3 if times > 1 else 1  # who polls looks as often as it takes
        for part in range(parts):
            low = begin + 4_010 + part * 7_980 // parts
            program.off(low, low + 7_980 // parts - 10, op=syscall, **woken)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    return program


@pytest.mark.parametrize(
    ("syscall", "woken"),
    [
        pytest.param(ACCEPT, {"flags": ASKED}, id="a connection"),
        pytest.param(ACCEPT4, {"waker_pid": STRANGER, "waker_tid": STRANGER}, id="of a client"),
        pytest.param(POLL, {"waker_pid": STRANGER, "waker_tid": STRANGER}, id="a client's message"),
    ],
)
def test_idle_because_nobody_asks_is_no_fault(syscall: int, woken: dict[str, int]) -> None:
    report = requests(syscall, **woken).report()
    diagnosis = diagnosed(report)
    assert diagnosis.kind == "no-requests"
    assert (report.findings, diagnosis.lead) == ((), None)


@pytest.mark.parametrize(
    ("syscall", "times", "advised"),
    [
        pytest.param(NANOSLEEP, 4, True, id="a loop that looks again later"),
        pytest.param(ACCEPT, 1, False, id="a server"),
    ],
)
def test_the_line_at_which_nobody_asks_is_named(syscall: int, times: int, advised: bool) -> None:
    program = requests(syscall, times, flags=ASKED, stack=5)
    told = {"pid": [MAIN], "stack": [5], "frames": [[["/app/server.py", 28, "serve"]]]}
    program.samples.append(Sample(FRAMES, START, told))
    report = program.report()
    assert ", waiting at server.py:28 in serve(). GPU 0 was idle" in report.verdict
    assert any("Queue.get" in text for text in diagnosed(report).advice) is advised


def test_one_sleep_before_each_work_is_the_program_s_own() -> None:
    program = requests(NANOSLEEP, flags=ASKED, stack=5)
    frames = {"pid": [MAIN], "stack": [5], "frames": [[["/app/train.py", 28, "epoch"]]]}
    program.samples.append(Sample(FRAMES, START, frames))
    report = program.report()
    (found,) = report.findings
    assert (diagnosed(report).kind, found.cause, found.name_level) == ("host", "C32", "proved")
    assert "sleeps in the loop at train.py:28 in epoch()" in report.verdict
    assert found.loss.lower == pytest.approx(STEPS * 7_970 * US, rel=0.01)
    assert found.loss.lower <= found.gain.ns <= 1.5 * found.loss.lower


def crowded(pid: int) -> Program:
    """The submitting thread wants a CPU, which a loader's worker, or a stranger, has meanwhile."""
    program = started()
    program.starts(WORKER, maker=MAIN)
    program.samples.append(items.names(START, {WORKER: "pt_data_worker"}, pid=WORKER))
    if pid == STRANGER:
        program.samples.append(items.process(STRANGER, watched=False))
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 4_000)
        program.preempted(begin + 4_010, begin + 10_000, queue_cpu=1)
        running = {"pid": pid, "tid": pid, "cpu": 1, "duration": 5_990 * US}
        program.records.append(items.event(RecordKind.OCCUPANT, START + (begin + 10_000) * US, **running))
        program.off(
            begin + 10_100,
            begin + 11_000,
            pid=WORKER,
            tid=WORKER,
            op=FUTEX,
            waker_pid=MAIN,
            waker_tid=MAIN,
        )
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    return program


def test_a_cpu_that_its_own_workers_have_is_a_matter_of_input() -> None:
    assert diagnosed(crowded(WORKER).report()).kind == "input"
    assert diagnosed(crowded(STRANGER).report()).kind == "cpu"


def busy(**figures: float) -> Diagnosis:
    """A GPU that is never idle for long, and what NVML reports of it."""
    machine = Machine()
    for number in range(300):
        machine.run([*launches([2_000] * 5), *([Deed("read")] if number % 50 == 0 else [])])
    for at in range(SECOND // 4, machine.length, SECOND // 4):
        machine.nvml(at, **{"utilization_percent": 99, **figures})
    return diagnosed(explain(machine.finished().evidence()))


@pytest.mark.parametrize(
    ("sm", "tensor", "dram", "kind", "words"),
    [
        (90, 70, 30, "compute", "the GPU itself is the limit"),
        (90, 2, 30, "compute", "tensor cores are hardly used (2 %)"),
        (95, 1, 85, "memory", "fuse kernels that read the same data"),
        (95, 90, 85, "compute", "the GPU itself is the limit"),
        (20, 30, 10, "compute", "a larger batch"),
    ],
)
def test_gpm_reports_what_a_busy_gpu_is_busy_with(
    sm: float, tensor: float, dram: float, kind: str, words: str
) -> None:
    found = busy(sm_active_percent=sm, tensor_active_percent=tensor, dram_bandwidth_percent=dram)
    assert (found.kind, str(found.level)) == (kind, "strong")
    assert any(words in advice for advice in found.advice)
    assert any("GPM" in said for said in found.evidence)
    assert found.lead is None


def test_advice_is_only_given_where_the_figures_support_it() -> None:
    found = busy(sm_active_percent=90, tensor_active_percent=70, dram_bandwidth_percent=30)
    assert not any("tensor" in advice or "batch" in advice for advice in found.advice)


@pytest.mark.parametrize(("memory", "kind"), [(80, "memory"), (20, "compute")])
def test_without_gpm_it_is_a_hint(memory: float, kind: str) -> None:
    found = busy(memory_utilization_percent=memory)
    assert (found.kind, str(found.level)) == (kind, "hint")
    assert any("NVML" in said for said in found.evidence)


def test_a_busy_gpu_of_which_nothing_more_is_reported_has_no_class() -> None:
    found = busy()
    assert (found.kind, found.advice, str(found.level)) == (None, (), "hint")


def test_activity_counts_while_kernels_run_and_not_over_all_the_time() -> None:
    """At work for three quarters of the time, and bound by memory then."""
    machine = Machine()
    for _ in range(300):
        machine.run([*launches([1_500] * 5), Deed("read"), Deed("host", 2_000)])
    for at in range(SECOND // 4, machine.length, SECOND // 4):
        machine.nvml(
            at,
            utilization_percent=78,
            sm_active_percent=70,
            tensor_active_percent=0,
            dram_bandwidth_percent=55,
        )
    found = explain(machine.finished().evidence())
    # what idles for a fifth of the time is reported first; its class is not that of the rest
    assert diagnosed(found).kind == "sync"


def test_an_idle_gpu_without_a_cause_is_of_no_class() -> None:
    machine = Machine()
    for _ in range(3):
        machine.run([*launches([1_000]), Deed("sync"), Deed("host", 900_000)])
    machine.utilization(SECOND // 6)
    assert explain(machine.finished().evidence()).diagnosis is None


def test_sources_that_disagree_make_no_more_than_a_hint() -> None:
    step = [Deed("host", 9_000), Deed("send", size=1 << 20), *launches([1_000] * 4)]
    machine = Machine()
    for number in range(300):
        machine.run([*step, *([Deed("sync")] if number % 3 == 0 else [])])
    for at in range(SECOND // 4, machine.length, SECOND // 4):
        machine.nvml(at, utilization_percent=85)
    report = explain(machine.finished().evidence())
    assert not report.gpus[0].account.agrees
    assert report.diagnosis is None or str(report.diagnosis.level) == "hint"


def test_what_happened_once_is_no_class() -> None:
    """A first use of two seconds, then a GPU that is never idle."""
    machine = Machine()
    machine.run([*launches([500]), Deed("sync"), Deed("host", 2 * SECOND)])
    for number in range(300):
        machine.run([*launches([2_000] * 5), *([Deed("read")] if number % 50 == 0 else [])])
    machine.utilization(SECOND // 6)
    report = explain(machine.finished().evidence())
    assert [event.ns // 1_000_000_000 for event in report.events] == [2]
    found = diagnosed(report)
    assert found.title == "the GPU is busy"
    # two of five seconds it was idle: what is reported of the rest must say so
    assert found.evidence[0].startswith("in the loop a kernel ran for about ")


def test_a_gpu_that_is_busy_from_the_first_moment_on_is_so_all_the_time() -> None:
    assert busy().evidence[0].startswith("a kernel ran for about ")
