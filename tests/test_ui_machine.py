"""The page of the machine: what btop and nvitop show of it, now and over the last minutes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gputop.ui.model.gpus.gpu_history import GpuHistory
from gputop.ui.model.gpus.machine_page import MachineHistory, page
from gputop.ui.model.listing.memory_shares import MemorySizes
from gputop.ui.model.listing.process_table import context_of, process_table
from gputop.ui.model.look import UNICODE, plain
from tests import fake_frames as fake
from tests.screen_support import Shown


def text(
    frame: fake.Frame,
    width: int,
    history: MachineHistory | None = None,
    gpus: GpuHistory | None = None,
    *,
    live: bool = True,
) -> str:
    histories = history or MachineHistory(), gpus or GpuHistory()
    return "\n".join(plain(line) for line in page(frame, *histories, width, UNICODE, live=live))


def test_h_opens_it_and_each_figure_of_the_machine_is_there() -> None:
    with Shown(fake.frame()) as screen:
        screen.press("H")
        shown = screen.text(120, 40)
        for wanted in (
            "AMD EPYC 9654 3.7GHz 61°C", "up 50h50m", "load of 1 min 6.40   of 5 min 5.90   of 15 min 4.10",
            "processes 412   threads 1730", "used 65.0G/256G   available 191G   cached 48.0G   free 131G",
            "swap used 0B/8.0G", "CPU 12%   memory 0%   I/O 2%", "read 310M/s   written 4.0M/s   busiest 38%",
            "received 12.0M/s   received in total 900G   sent 1.0M/s   sent in total 21.0G",
        ):  # fmt: skip
            assert wanted in shown
        screen.press("escape")
        assert "Processes" in screen.text(120, 40)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 250])
def test_no_figure_is_cut_and_each_cpu_has_its_bar(width: int) -> None:
    frame = fake.frame()
    assert frame.host is not None
    frame = replace(frame, host=replace(frame.host, cores_percent=tuple(float(at) for at in range(64))))
    lines = text(frame, width).splitlines()
    assert max(map(len, lines)) <= width
    whole = "\n".join(lines)
    assert re.findall(r"(\d+) [━─]+ +(\d+)%", whole) == [(str(core), str(core)) for core in range(64)]
    assert "swap used 0B/8.0G" in whole
    assert "…" not in whole


def test_its_graphs_hold_the_shares_of_the_last_minutes() -> None:
    history = MachineHistory()
    for second in range(120):
        frame = fake.frame()
        assert frame.host is not None
        busy = 100.0 if second >= 60 else 0.0
        frame = replace(
            frame,
            time_ns=frame.time_ns + second * fake.S,
            host=replace(frame.host, cpu_percent=busy),
        )
        history.add(frame)
    line = next(line for line in text(frame, 82, history).splitlines() if line.startswith(" CPU  "))
    graph = line[21:].strip()
    assert len(graph) == 60
    assert set(graph[30:]) == {"⣿"}
    assert set(graph[:29]) == {"⣀"}


def test_the_means_of_all_gpus_have_graphs_as_in_nvitop() -> None:
    """With more than one GPU no graph of their memory was to be had."""
    gpus = GpuHistory()
    for second in range(120):
        frame = fake.frame(gpus=8)
        percents = [100 if second >= 60 and gpu.index < 4 else 0 for gpu in frame.gpus]
        rows = [
            replace(gpu, utilization_percent=percent, memory_used_bytes=20 << 30, utilization_history=())
            for gpu, percent in zip(frame.gpus, percents, strict=True)
        ]
        frame = replace(frame, time_ns=frame.time_ns + second * fake.S, gpus=tuple(rows))
        gpus.append(frame)
    lines = text(frame, 82, None, gpus).splitlines()
    use = next(line for line in lines if line.startswith(" GPUs, mean"))
    assert " 50% " in use
    high, low = (lines[lines.index(use) - back][21:] for back in (1, 0))
    assert set(low[30:60]) == {"⣿"}
    assert set(high[30:60]) == {" "}, "half of two lines"
    assert set(low[:29]) == {"⣀"}
    assert next(line for line in lines if line.startswith(" GPU memory")).split()[2] == "25%"
    assert "GPU memory" not in text(replace(frame, gpus=()), 82, None, gpus)


def test_the_page_of_one_of_several_gpus_has_graphs_of_minutes() -> None:
    """It had its utilisation of the last 23 s, in one line, above 18 empty ones."""
    with Shown(fake.frame(gpus=3), "tab", "enter", size=(120, 40)) as screen:
        for tick in range(1, 8):
            screen.feed.newest = fake.frame(tick, gpus=3)
            screen.app.poll()
        shown = screen.text(120, 40)
    labels = [line.strip("│").split()[:1] for line in shown.splitlines()]
    assert all([label] in labels for label in ("util", "mem", "power"))
    assert "0-100%, last" in shown


def test_what_is_not_known_is_left_out_or_said() -> None:
    none = replace(fake.frame(), host=None)
    assert text(none, 80, live=False) == " The recording has no figures of the machine."
    assert "within a second" in text(none, 80)
    frame = fake.frame()
    assert frame.host is not None
    unknown = dict.fromkeys(
        (
            "cpu_mhz",
            "cpu_temperature_celsius",
            "processes",
            "threads",
            "disk_busy_percent",
            "swap_total_bytes",
        )
    )
    shown = text(replace(frame, host=replace(frame.host, cpu_model="", **unknown)), 120)  # type: ignore[arg-type]
    assert not [word for word in ("GHz", "°C", "processes 4", "threads", "busiest", "None") if word in shown]


def test_a_process_has_its_part_of_both_memories_and_is_sorted_by_it() -> None:
    """8 of the 80 GB of one GPU are a larger part than 8 of the 160 GB of two."""
    frame = fake.frame(gpus=2)
    assert frame.host is not None
    first, second = (
        replace(row, gpus=gpus, gpu_memory_bytes=8 << 30, rss_bytes=size << 30)
        for row, gpus, size in zip(frame.processes, ((0, 1), (1,)), (64, 128), strict=False)
    )
    sizes = MemorySizes()
    sizes.show(frame)
    table = process_table(sizes=sizes)
    table.update([first, second], frame.time_ns)
    columns = {column.key: column for column in table.columns}
    context = context_of(frame, UNICODE)
    for key, texts in (("gpu_memory_share", ["5", "10"]), ("memory_share", ["25", "50"])):
        column = columns[key]
        assert [column.cell(row, context, 5)[0] for row in (first, second)] == texts
        assert column.sort(first) < column.sort(second)
    unknown = replace(first, gpus=None, rss_bytes=None)
    assert {columns[key].cell(unknown, context, 5)[0] for key in ("gpu_memory_share", "memory_share")} == {
        "-"
    }
