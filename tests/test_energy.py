"""Energy: joules are the power over time, by GPU and process; what a fix saves stands beside its time."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.answer.wording import energy_text, saved_joules, step_joules
from gputop.analysis.evidence.power import FAR_NS, Energy, GpuEnergy, energy_of
from gputop.api.functions import explain
from gputop.documents.additive import added_up
from gputop.documents.fields import document
from gputop.engine.frame import GpuProcess
from gputop.engine.gpus.gpu_processes import watts_of
from gputop.format import format_joules
from gputop.ui.model.answer.why import why_of
from gputop.ui.model.answer.whylines import why_lines
from gputop.ui.model.look import UNICODE, plain
from probes.samples import listed_gpus
from probes.source import GPUS, Sample
from replay.reader import SessionReader
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.items import START
from tests.programs import DEVICE_SYNC, LAUNCH, Program

S = 1_000_000_000
RECORDINGS = Path(__file__).parents[1] / "recordings"


def sample(at_s: float, *gpus: dict[str, object]) -> Sample:
    """What NVML said at a moment."""
    return Sample(GPUS, int(at_s * S), {"gpus": [{"index": place, **gpu} for place, gpu in enumerate(gpus)]})


def drawn(watts: float, **use: int) -> dict[str, object]:
    """A GPU that takes so many watts, with the SM shares of its processes p1, p2, …"""
    pids = [int(name[1:]) for name in use]
    return {
        "power_milliwatts": int(1000 * watts),
        "processes": [[pid, 1 << 20] for pid in pids],
        "process_utilization": {"pid": pids, "sm_percent": list(use.values())},
    }


def test_energy_is_the_area_below_the_power() -> None:
    chance = Random(3)
    times = sorted(chance.uniform(0, 60) for _ in range(200))
    powers = [chance.uniform(60, 700) for _ in times]
    samples = [
        sample(at, {"power_milliwatts": 1000 * power}) for at, power in zip(times, powers, strict=True)
    ]
    area = sum(
        (after - before) * (one + other) / 2
        for before, after, one, other in zip(times, times[1:], powers, powers[1:], strict=False)
    )
    made = energy_of(samples, 0, 60 * S)
    assert made.joules == pytest.approx(area, rel=1e-6)
    assert made.gpus[0].measured_ns == pytest.approx((times[-1] - times[0]) * S, rel=1e-6)
    cut = energy_of([sample(0, {"power_milliwatts": 1e5}), sample(4, {"power_milliwatts": 1e5})], S, 3 * S)
    assert (cut.joules, cut.gpus[0].measured_ns) == (200.0, 2 * S), "what lies outside does not count"


def test_where_nothing_was_sampled_nothing_is_made_up() -> None:
    gap = FAR_NS / S + 0.1
    made = energy_of([sample(at, drawn(100)) for at in (0, 1, 1 + gap, 2 + gap)], 0, 100 * S)
    assert (made.joules, made.gpus[0].measured_ns) == (200.0, 2 * S)
    assert not energy_of([sample(0, {}), sample(1, {"power_milliwatts": None})], 0, S).gpus


def test_processes_have_their_part_by_sm_time_and_the_only_one_has_all() -> None:
    made = energy_of([sample(at, drawn(100, p1=60, p2=20), drawn(50, p3=0)) for at in range(11)], 0, 10 * S)
    assert made.processes == pytest.approx({1: 750.0, 2: 250.0, 3: 500.0})
    assert made.watts_of(1) == pytest.approx(75.0)
    assert made.watts_of(9) is None
    idle = energy_of([sample(at, drawn(100, p1=0, p2=0)) for at in range(3)], 0, 2 * S)
    assert (idle.joules, dict(idle.processes)) == (200.0, {}), "of two that do nothing neither has it"


def test_a_step_takes_the_power_of_the_time_in_which_its_process_ran() -> None:
    """It came after 6 of 10 s: its 900 J in 3 s are 300 W, whatever the GPU took before."""
    samples = [sample(at, drawn(100), drawn(100)) for at in range(7)]
    samples += [sample(at, drawn(200, p1=0), drawn(100, p1=0)) for at in range(7, 10)]
    made = energy_of(samples, 0, 10 * S)
    joules = 150 + 2 * 200 + 3 * 100
    assert made.processes == pytest.approx({1: joules})
    assert made.watts_of(1) == pytest.approx(joules / 3), "on two GPUs at once the time counts once"
    both = added_up(made, energy_of(samples, 0, 8 * S))
    assert both.watts_of(1) == pytest.approx((joules + 150 + 200 + 200) / 5)


def test_what_follows_is_added() -> None:
    one = energy_of([sample(at, drawn(100, p1=5)) for at in range(6)], 0, 5 * S)
    other = energy_of([sample(at, drawn(300, p1=5, p2=15)) for at in range(5, 11)], 5 * S, 10 * S)
    both = added_up(one, other)
    assert both.gpus[0].joules == pytest.approx(2000.0)
    assert both.processes == pytest.approx({1: 500 + 375.0, 2: 1125.0})


def test_watts_of_a_process_add_up_to_those_of_its_gpu() -> None:
    rows = []
    for gpu in fake.frame(gpus=2).gpus:
        use = tuple(
            GpuProcess(pid, "C", 1 << 20, sm, None, None, None, None, "python", "", "", "", True)
            for pid, sm in ((1, 30), (2, 10))
        )
        rows.append(replace(gpu, power_milliwatts=400_000, processes=use))
    watts = watts_of(rows)
    assert watts == pytest.approx({1: 600.0, 2: 200.0})
    assert not watts_of([replace(rows[0], power_milliwatts=None)])


def test_what_a_fix_saves_stands_beside_the_saved_time() -> None:
    report = replace(why.report(why.finding(), diagnosis=why.diagnosis()), energy=Energy(
        {0: GpuEnergy(10 * S, 2120.0)}, {4242: 2120.0}, {4242: 10 * S}))  # fmt: skip
    assert saved_joules(report, report.findings[0], report.findings[0].gain.ns) == pytest.approx(212 * 3.2)
    assert step_joules(report) == pytest.approx(212 * 0.014)
    assert energy_text(report) == "Energy: GPU 0 took 2.1 kJ (212 W), 3 J a step."
    text = report_to_text(report)
    assert "saves up to 3.20s (678 J)" in text
    assert "Energy: GPU 0 took 2.1 kJ (212 W)" in text
    told = document(report)["energy"]
    assert told["gpus"] == [{"index": 0, "measured_ns": 10 * S, "joules": 2120.0, "watts": 212.0}]
    assert told["saved_joules"] == [pytest.approx(678.4)]
    explained = replace(why.explained(), report=report)
    shown = why_of(explained, replace(fake.frame(), time_ns=explained.end_ns))
    assert shown.fix is not None
    lines = [plain(line) for line in why_lines(shown, 120, 5, UNICODE)]
    assert any("saves up to 4.6 ms/step, 0.97 J" in line for line in lines), lines
    narrow = [plain(line) for line in why_lines(shown, 60, 4, UNICODE)]
    assert not any(" J " in line for line in narrow), "the advice comes first where it is narrow"
    assert "energy" not in document(replace(report, energy=None))


def busy(made: Program, pid: int, devices: tuple[int, ...], ms: int) -> None:
    """Adds a program with a step of 20 ms: each of its GPUs works for so many of them, in turns."""
    for begin in range(0, 400_000, 20_000):
        for place, device in enumerate(devices):
            at = begin + 1000 * (ms + 1) * place
            made.call("cudaSetDevice", at, at + 5, pid=pid, aux=device)
            made.call(LAUNCH, at + 100, at + 110, pid=pid)
            made.call(DEVICE_SYNC, at + 120, at + 120 + 1000 * ms, pid=pid)


def test_a_finding_saves_at_the_power_of_its_own_gpus() -> None:
    """One program on GPU 0 (100 W), one on GPU 2 (700 W), one on 1 and 3 in turns (200 and 300 W)."""
    made = Program()
    programs = {10: (0,), 20: (2,), 30: (1, 3)}
    watts = (100, 200, 700, 300)
    for pid, devices in programs.items():
        made.starts(pid)
        busy(made, pid, devices, 4)
    listed = [[pid for pid, devices in programs.items() if gpu in devices] for gpu in range(4)]
    rows = [
        {"index": index, "uuid": f"u{index}", "processes": [[pid, 1 << 20] for pid in listed[index]]}
        for index in range(4)
    ]
    made.gpus = Sample(GPUS, START, {"gpus": rows})
    report = made.report()
    measured = {index: GpuEnergy(10 * S, 10.0 * power) for index, power in enumerate(watts)}
    report = replace(report, energy=Energy(measured, {}, {}))
    assert {finding.pid for finding in report.findings} == set(programs)
    for finding in report.findings:
        own = [watts[device] for device in programs[finding.pid]]
        joules = saved_joules(report, finding, S)
        assert joules is not None
        assert joules == pytest.approx(sum(own)), "a second that is saved is saved on each of its GPUs"
    assert Energy(measured, {}, {}).watts_on(()) is None, "of four GPUs which one is not known"
    assert Energy({5: GpuEnergy(S, 7.0)}, {}, {}).watts_on(()) == 7.0
    assert Energy(measured, {}, {}).watts_on((7,)) is None


@pytest.mark.parametrize(
    ("joules", "text"),
    [(0.04, "0.04 J"), (9.94, "9.9 J"), (512, "512 J"), (999.6, "1 kJ"), (4.2e6, "4.2 MJ")],
)
def test_joules_are_short(joules: float, text: str) -> None:
    assert format_joules(joules) == text
    assert format_joules(math.nan) == "-"


@pytest.mark.slow
def test_a_recording_reports_the_energy_of_its_own_samples() -> None:
    path = RECORDINGS / "dataloader.msgpack"
    report = explain(str(path))
    assert report.energy is not None
    with closing(SessionReader(path)) as reader:
        points = [
            (one.time_ns, float(row["power_milliwatts"]) / 1e3)
            for one in reader.samples(GPUS)
            for row in listed_gpus(one)
        ]
    low = report.start_ns
    inside = [point for point in points if low <= point[0] <= low + report.duration_ns]
    watts = [power for _at, power in inside]
    assert min(watts) <= report.energy.gpus[0].watts <= max(watts)
    area = sum((b[0] - a[0]) / S * (a[1] + b[1]) / 2 for a, b in pairwise(inside))
    assert area * 0.999 <= report.energy.joules <= area * 1.2, "the ends lie between two samples"
