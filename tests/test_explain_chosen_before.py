"""Processes that chose their GPU before gputop observed them: NVML's list says which, or nothing does."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gputop.analysis.answer.report_output import report_to_markdown, report_to_text
from gputop.analysis.answer.wording import devices_text
from gputop.playback.feed import Explained
from gputop.ui.model.answer.why import why_of
from gputop.ui.model.answer.why_narrow import narrow_lines
from gputop.ui.model.answer.whylines import why_lines
from gputop.ui.model.look import ASCII, plain
from probes.source import GPUS, Sample
from tests import fake_frames, items
from tests.items import START
from tests.programs import DEVICE_SYNC, LAUNCH, US, Program

NOTHING: tuple[int, ...] = ()


def gpus(*listed: tuple[int, ...], cut: tuple[int, ...] = (), time_ns: int = START) -> Sample:
    """A machine's GPUs; NVML lists these processes on each."""
    rows = [
        {"index": index, "name": "GPU", "uuid": f"u{index}", "processes": [[pid, 1 << 20] for pid in pids]}
        | {"mig_enabled": index in cut}
        for index, pids in enumerate(listed)
    ]
    return Sample(GPUS, time_ns, {"driver": "1.2.3", "gpus": rows, "error": ""})


def late(pids: dict[int, int], **facts: Any) -> Program:
    """A step of 10 ms; each of the processes launches a kernel of so many ms and waits for it."""
    made = Program()
    for pid, busy_ms in pids.items():
        known = {"cuda_visible_devices": None, "cuda_devices_missed": True, **facts}
        made.samples.append(items.process(pid, START, **known))
        for begin in range(0, 300_000, 10_000):
            made.call(LAUNCH, begin + 100, begin + 110, pid=pid)
            made.call(DEVICE_SYNC, begin + 120, begin + 120 + 1000 * busy_ms, pid=pid)
    return made


def idle_of(made: Program) -> dict[str, int]:
    """Name of each GPU -> its idle time in tenths of the time."""
    return {one.label: round(10 * one.idle.estimate / one.span_ns) for one in made.report().gpus}


def test_each_process_counts_for_the_gpu_on_which_nvml_lists_it() -> None:
    made = late({10: 2, 20: 5, 30: 8})
    made.gpus = gpus((10,), NOTHING, (30,), (20,))
    assert idle_of(made) == {"GPU 0": 8, "GPU 2": 2, "GPU 3": 5}
    assert not [finding for finding in made.report().findings if finding.cause == "C25"], "nothing is shared"


def test_one_that_has_ended_counts_for_the_gpu_that_it_was_on() -> None:
    made = late({10: 2, 20: 5})
    made.samples.append(gpus((10,), (20,)))
    made.gpus = gpus(NOTHING, (20,), time_ns=START + 100)
    assert idle_of(made) == {"GPU 0": 8, "GPU 1": 5}


def test_a_process_in_a_container_counts_for_the_gpu_on_which_nvml_lists_it() -> None:
    """How CUDA counts there is not known; it has chosen one device, and NVML lists it on one GPU."""
    made = late({10: 2, 20: 5}, cuda_devices_missed=False, namespace_pid=7)
    made.gpus = gpus((20,), (10,))
    assert idle_of(made) == {"GPU 0": 5, "GPU 1": 8}


def test_a_process_that_sets_its_visible_devices_itself_counts_for_the_gpu_on_which_nvml_lists_it() -> None:
    """Workers of one Python that set os.environ before CUDA begins: their environment names no device."""
    made = late({10: 2, 20: 5, 30: 8}, cuda_devices_missed=False)
    assert [one.label for one in made.report().gpus] == ["GPU 0"], "NVML lists none of them"
    made.gpus = gpus((20,), (30,), (10,))
    assert idle_of(made) == {"GPU 0": 5, "GPU 1": 2, "GPU 2": 8}
    made.gpus = gpus((20,), (30,), (10,), (10,))
    labels = [one.label for one in made.report().gpus]
    assert "device 0 of process 10" in labels, "on which of two is not known"


def test_a_machine_with_one_gpu_leaves_no_doubt() -> None:
    made = late({10: 2})
    made.gpus = gpus(NOTHING)
    assert idle_of(made) == {"GPU 0": 8}


def test_of_a_gpu_that_is_cut_nvml_does_not_say_which_part() -> None:
    made = late({10: 2, 20: 5}, cuda_visible_devices="MIG-1")
    made.gpus = gpus((10, 20), NOTHING, cut=(0,))
    assert sorted(idle_of(made).items()) == [
        ("an unknown device of process 10", 8),
        ("an unknown device of process 20", 5),
    ]


@pytest.mark.parametrize("pids", [(10, 20), (10, 20, 30, 40)])
def test_processes_on_unnamed_gpus_count_as_processes_not_as_gpus(pids: tuple[int, ...]) -> None:
    """Short children that have ended before NVML listed them: all may have been on one GPU."""
    made = late(dict.fromkeys(pids, 2))
    made.gpus = gpus(NOTHING, NOTHING)
    report = made.report()
    assert len(report.gpus) == len(pids)
    subject = f"The GPUs of {len(pids)} processes were idle for about 79 %"
    assert subject in report.verdict
    why = why_of(Explained(report, report.start_ns + report.duration_ns), fake_frames.frame())
    narrow = "\n".join(plain(line) for line in narrow_lines(why, 60, 6, ASCII, focused=False))
    panel = "\n".join(plain(line) for line in why_lines(why, 80, 4, ASCII))
    for shown in (report_to_text(report, 300), report_to_markdown(report), narrow, panel):
        assert f"{len(pids)} GPUs" not in shown, shown
        assert not re.search(r"\+\d GPU", shown), shown


def test_named_gpus_and_processes_on_unnamed_ones_are_counted_apart() -> None:
    labels = ["GPU 0", "GPU 1", "an unknown device of process 7", "an unknown device of process 8"]
    assert devices_text(labels) == "2 GPUs and the GPUs of 2 processes"
    assert devices_text([*labels[:1], "device 0 of process 7", "device 1 of process 7"]) == (
        "GPU 0 and the GPUs of process 7"
    )
    assert devices_text(labels[2:3]) == labels[2]


def test_which_of_several_gpus_is_not_known_and_none_of_them_is_proved_idle() -> None:
    made = late({10: 2})
    made.gpus = gpus((10,), (10,))
    assert list(idle_of(made)) == ["an unknown device of process 10"]
    assert not made.gaps()


@pytest.mark.parametrize(("listed", "proved"), [(((20,), (10,)), True), (((20, 10), (10,)), False)])
def test_a_gpu_on_which_another_may_work_is_not_proved_idle(
    listed: tuple[tuple[int, ...], ...], proved: bool
) -> None:
    made = late({10: 2, 20: 5})
    made.gpus = gpus(*listed)
    analysis = made.analysis()
    first = analysis.gpu.devices.labels.index("GPU 0")
    assert set(analysis.gpu.gaps.proved[analysis.gpu.gaps.device == first].tolist()) == {proved}


def test_a_thread_that_chooses_in_sight_is_known_from_then_on() -> None:
    made = late({10: 2})
    made.gpus = gpus((10,), (10,))
    made.call("cudaSetDevice", 400_000, 400_010, aux=1)
    for begin in range(400_100, 600_000, 10_000):
        made.call(LAUNCH, begin + 100, begin + 110)
        made.call(DEVICE_SYNC, begin + 120, begin + 5120)
    begins = [begin for begin, _end in made.gaps()]
    assert begins
    assert min(begins) > 400_000


def test_a_context_that_an_untraced_call_made_is_on_the_gpu_where_nvml_lists_it() -> None:
    made = late({10: 2}, cuda_devices_missed=False, cuda_devices_hidden=True)
    made.gpus = gpus(NOTHING, (10,))
    assert idle_of(made) == {"GPU 1": 8}
    assert made.gaps()[0][0] == 2120 * US // US


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "GPU 0 was idle"), (2, "GPU 0 and GPU 1 were idle"), (3, "3 GPUs were idle")],
)
def test_a_loss_on_several_gpus_of_one_program_names_each_or_their_number(count: int, said: str) -> None:
    """It gives each GPU a millisecond of work in turn, then does something else for seven."""
    made = Program()
    made.starts(10)
    for begin in range(10, 1_000_000, 10_000):
        for device in range(count):
            at = begin + 1000 * device
            made.call("cudaSetDevice", at, at + 5, pid=10, aux=device)
            made.call(LAUNCH, at + 10, at + 20, pid=10)
            made.call(DEVICE_SYNC, at + 30, at + 990, pid=10)
    made.gpus = gpus(*[(10,)] * count)
    first = made.report().findings[0]
    assert first.chain[0].text == said
    assert len(made.report().gpus) == count
