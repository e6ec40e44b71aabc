"""The GPU pane and the page of one GPU: what is shown at which size, what alarms, how one moves."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from gputop.commands.screen.text import render_text
from gputop.engine.frame import Frame, GpuProcess, GpuRow, MigRow
from gputop.ui.model.gpus import gpu_list
from gputop.ui.model.look import UNICODE, Line, plain
from tests import fake_frames as fake
from tests.screen_support import Shown

PAGE = ("tab", "enter")  # to the GPUs, and to the page of the first
SIZES = ((80, 24), (120, 40), (200, 50))
ALARMS = {"alert", "warn", "host"}
BOX, COMMAND = "docker 0123456789ab", "/opt/bin/python train.py /d"
PROCESSES = (
    GpuProcess(4242, "C", 9 << 30, 33, 10, 0, 0, None, "python", "alice", COMMAND, BOX, True),
    GpuProcess(99, "C", 1 << 30, 0, 0, 0, 0, None, "", "", "", "", False),
)  # fmt: skip


def hopper(index: int, **changes: Any) -> GpuRow:
    """A GPU that offers everything and is busy."""
    row = replace(
        fake.gpu(index),
        utilization_percent=100,
        utilization_history=(100,) * 240,
        memory_used_bytes=29 << 30,
        power_milliwatts=700_000,
        temperature_celsius=80,
        fan_percent=90,
        sm_clock_mhz=1755,
        sm_clock_max_mhz=1980,
        memory_clock_max_mhz=2619,
        compute_mode="exclusive process",
        persistence_enabled=True,
        clock_event_reasons=4,
        clock_events=("power limit",),
        pcie_generation=4,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        nvlink_tx_bytes_per_second=3 << 30,
        nvlink_rx_bytes_per_second=2 << 30,
        encoder_percent=20,
        decoder_percent=0,
        ecc_corrected_errors=3,
        ecc_uncorrected_errors=0,
        ecc_corrected_total=4,
        ecc_uncorrected_total=1,
        sm_active_percent=81.5,
        sm_occupancy_percent=40.0,
        tensor_active_percent=62.0,
        dram_bandwidth_percent=0.4,
        performance_state=0,
        mig_enabled=False,
        pci_bus_id="00000000:10:00.0",
        processes=PROCESSES,
        unavailable=(),
    )
    return replace(row, **changes)


def lost(index: int) -> GpuRow:
    """A GPU that answers nothing any more."""
    gone = dict.fromkeys(
        ("utilization_percent", "memory_used_bytes", "memory_total_bytes", "power_milliwatts", "sm_clock_mhz",
         "temperature_celsius", "processes"),
    )  # fmt: skip
    return replace(fake.gpu(index), lost="the GPU is lost", unavailable=(("power_milliwatts", "x"),), **gone)  # type: ignore[arg-type]


def screen_of(
    *gpus: GpuRow, keys: tuple[str, ...] = (), size: tuple[int, int] = (120, 40), **options: Any
) -> Shown:
    """The screen over these GPUs after some keys."""
    return Shown(replace(fake.frame(3), gpus=gpus), *keys, size=size, **options)


def lines_of(shown: Shown, size: tuple[int, int] = (0, 0)) -> list[str]:
    return shown.text(*size).splitlines()


def gpu_lines(size: tuple[int, int], *rows: GpuRow) -> list[Line]:
    """The lines of the pane, from its heading on."""
    lines, _more = gpu_list.gpu_lines(replace(fake.frame(3), gpus=rows), size[0], len(rows) + 1, UNICODE)
    return lines


def test_the_wider_the_screen_the_more_it_says() -> None:
    widths = ((80, 24), (120, 40), (200, 40))
    heads = [set(plain(gpu_lines(size, hopper(0), hopper(1))[0]).split()) for size in widths]
    always = {"GPU", "UTIL", "SM%", "MEM%", "FAN%", "TENS%", "MEMORY", "POWER", "TEMP", "CLOCK"}
    assert always <= heads[0]
    assert len(heads[0]) < len(heads[1]) < len(heads[2])
    assert "PCIe" in heads[1]
    assert {"DRAM%", "NVLink", "ENC/DEC%", "ECC", "THROTTLE"} <= heads[2]


def test_a_line_of_80_columns() -> None:
    text = plain(gpu_lines((80, 24), hopper(0), hopper(1))[1])
    assert text.split()[:2] == ["0", "100%"]
    assert text.split()[3:] == ["82", "62", "29.0G/80.0G", "36", "700/700W", "80°C", "90", "1755MHz"]


def test_a_busy_hot_gpu_at_its_power_limit_is_no_alarm() -> None:
    size = SIZES[0]
    for line in gpu_lines(size, hopper(0), hopper(1)):
        assert not {token.partition("+")[0] for _, token in line} & ALARMS


def test_clocks_that_heat_holds_down_have_a_sign_and_a_colour() -> None:
    size = SIZES[0]
    held = hopper(1, clock_event_reasons=0x20, clock_events=("temperature",), sm_clock_mhz=585)
    line = gpu_lines(size, hopper(0), held)[2]
    assert "▲585MHz" in plain(line)
    assert "warn" in {token for _, token in line}
    page = "\n".join(lines_of(screen_of(held, keys=PAGE), size))
    assert re.search(r"clock limit +temperature", page)


def test_a_lost_gpu_alarms_and_leaves_the_others() -> None:
    size = SIZES[0]
    fine, gone = gpu_lines(size, hopper(0), lost(1))[1:]
    assert "▲ the GPU is lost" in plain(gone)
    assert "alert" in {token for _, token in gone}
    assert "lost" not in plain(fine)


def test_columns_that_no_gpu_has_take_no_room() -> None:
    old = replace(fake.gpu(0), unavailable=(("sm_active_percent", "from Hopper on"),))
    head = plain(gpu_lines((200, 40), old, replace(old, index=1))[0])
    assert not {"SM%", "TENS%", "NVLink", "FAN%"} & set(head.split())


@pytest.mark.parametrize("size", SIZES)
def test_eight_gpus_are_all_in_sight(size: tuple[int, int]) -> None:
    rows = [hopper(index, power_milliwatts=100_000 + 1_000 * index) for index in range(8)]
    text = "\n".join(lines_of(screen_of(*rows, size=size), size))
    assert all(f"{100 + index}/700W" in text for index in range(8))


def test_clocks_that_are_held_down_show_where_there_is_little_room() -> None:
    rows = [hopper(index) for index in range(7)] + [hopper(7, clock_event_reasons=0x40)]
    text = "\n".join(lines_of(screen_of(*rows, size=(80, 24)), (80, 24)))
    assert "7▲100%" in text
    assert text.count("▲100%") == 1


def test_without_a_gpu_a_sentence_says_why() -> None:
    size = SIZES[0]
    frame = replace(fake.frame(), gpus=(), problems=("no GPU figures: no NVIDIA driver",))
    shown = Shown(frame, size=size)
    assert any("No GPU is shown: no NVIDIA driver" in line for line in lines_of(shown, size))
    for key in (*PAGE, "down", "pagedown"):
        shown.press(key)
        assert any("No GPU is shown" in line for line in lines_of(shown, size))


def test_the_page_has_every_figure() -> None:
    page = " ".join("\n".join(lines_of(screen_of(hopper(0), keys=PAGE))).split())
    for text in (
        "utilisation 100%", "SMs active 82%", "SM occupancy 40%", "tensor cores 62%", "DRAM bandwidth 0.4%",
        "encoder 20%", "decoder 0%", "used 29.0G/80.0G 36%", "ECC corrected 3", "ECC uncorrected 0",
        "ECC corr. ever 4", "ECC uncorr. ever 1", "power / limit 700/700W", "temperature 80°C", "fan 90%",
        "state P0", "SM clock 1755 of 1980 MHz", "memory clock 2619 of 2619 MHz",
        "clock limit power limit", "PCIe received 512M/s", "PCIe sent 1.0G/s", "NVLink received 2.0G/s",
        "PCIe link gen 4/5 x16", "NVLink sent 3.0G/s",
        "compute mode exclusive process", "persistence on", "MIG off",
        "4242 C 9.0G 33 10 0 0 alice [docker 0123456789ab] python train.py /d",
        "99 C 1.0G 0 0 0 0 ? unknown: not visible in /proc", "00000000:10:00.0", "0-100%, last",
    ):  # fmt: skip
        assert text in page
    assert "n/a" not in page


def test_the_page_groups_what_is_missing_by_its_reason() -> None:
    reason = "offered from the Hopper generation on (GPM)"
    missing = dict.fromkeys(("sm_active_percent", "tensor_active_percent", "fan_percent"))
    why = (("sm_active_percent", reason), ("tensor_active_percent", reason), ("fan_percent", "no fan"))
    gpu = hopper(0, unavailable=why, **missing)
    page = "\n".join(lines_of(screen_of(gpu, keys=PAGE)))
    assert f"n/a: SMs active, tensor cores: {reason}" in page
    assert "n/a: fan: no fan" in page
    assert re.search(r"fan +n/a", page)


def test_the_page_of_a_gpu_that_is_cut_shows_its_instances() -> None:
    rows = tuple(
        MigRow(
            at, f"MIG-{at}", "H100 MIG 3g.40gb", 1 + at, 0, 60, at << 30, 40 << 30, 12.0 * at, 1.0, 2.0, None
        )
        for at in range(2)
    )
    process = replace(PROCESSES[0], gpu_instance=2)
    gpu = hopper(0, mig_enabled=True, mig=rows, utilization_percent=None, processes=(process,))
    shown = screen_of(gpu, hopper(1))
    assert "MIG: 2 " in "\n".join(lines_of(shown))
    page = "\n".join(lines_of(screen_of(gpu, keys=PAGE)))
    assert "Instances (MIG) 2" in page
    assert re.search(r"1 +2 +60 +1\.0G/40\.0G +12 +2 +- +H100 MIG 3g\.40gb +MIG-1", page)
    assert re.search(r"INST +USER", page)
    assert re.search(r"4242 .* 2 +alice", page)


def test_a_gpu_says_its_temperature_at_80_columns_and_its_state_where_there_is_room() -> None:
    rows = tuple(hopper(index, performance_state=2) for index in range(8))
    lines = lines_of(screen_of(*rows, size=(80, 24)), (80, 24))
    heat = f"{rows[0].temperature_celsius}°C"
    assert sum(line.count(heat) for line in lines) == 8
    wide = lines_of(screen_of(*rows, size=(250, 70)), (250, 70))
    assert any(" PERF " in line for line in wide)
    assert any(" P2 " in line for line in wide)


@pytest.mark.slow
def test_the_cursor_chooses_whose_page_opens() -> None:
    rows = [replace(hopper(index), name=f"card {index}") for index in range(3)]
    shown = screen_of(*rows, keys=("tab", "down"))
    assert any(line.lstrip("│").startswith("› 1") for line in lines_of(shown))
    shown.press("enter")
    assert any("GPU 1  card 1" in line for line in lines_of(shown))
    shown.press("down")
    assert any("GPU 2  card 2" in line for line in lines_of(shown))
    shown.press("down")
    assert any("GPU 2 of 3 GPUs" in line for line in lines_of(shown))
    shown.press("up", "up", "escape")
    assert any(line.lstrip("│").startswith("› 0") for line in lines_of(shown))


def test_the_title_says_what_the_gpus_have_in_common() -> None:
    def said(width: int, *gpus: GpuRow) -> str:
        frame = replace(fake.frame(), gpus=gpus, driver="580.00", cuda="13.0")
        return "".join(text for text, _ in gpu_list.facts_of_all(frame, width, UNICODE)).strip()

    one, two = hopper(0), hopper(1)
    alike = "NVIDIA H100 80GB HBM3  driver 580.00  CUDA 13.0"
    modes = "compute mode exclusive process", "persistence on"
    assert said(200, one, two) == "  ".join((alike, *modes))
    assert said(66, one, two) == f"{alike}  {modes[1]}"
    other = replace(two, compute_mode="default", persistence_enabled=None, name="NVIDIA L4")
    assert said(200, one, other) == f"driver 580.00  CUDA 13.0  {modes[0]} (0), default (1)"
    assert "H100" in "\n".join(lines_of(screen_of(one, other, size=(200, 50)), (200, 50)))


def test_a_click_on_a_gpu_takes_the_cursor_there() -> None:
    shown = screen_of(*(hopper(index) for index in range(3)))
    place = next(at for at, line in enumerate(lines_of(shown)) if line.lstrip("│").startswith("  2 "))
    shown.click(10, place)
    assert lines_of(shown)[place].lstrip("│").startswith("› 2")


@pytest.mark.slow
def test_a_page_that_does_not_fit_can_be_scrolled() -> None:
    size = (80, 24)
    many = tuple(replace(PROCESSES[0], pid=1000 + at) for at in range(30))
    shown = screen_of(hopper(0, processes=many), keys=PAGE, size=size)
    assert re.search(r"\+\d+ rows", "\n".join(lines_of(shown, size)))
    assert "1029" not in "\n".join(lines_of(shown, size))
    for _ in range(3):
        shown.press("pagedown")
    assert "1029" in "\n".join(lines_of(shown, size))
    shown.press("home")
    assert "utilisation" in "\n".join(lines_of(shown, size))


def test_names_of_others_cannot_write_to_the_terminal() -> None:
    evil = "\x1b[2J\n"
    process = replace(PROCESSES[0], command=evil, user=evil, container=evil, kind=evil)
    gpu = hopper(0, name=evil, uuid=evil, pci_bus_id=evil, processes=(process,), unavailable=((evil, evil),))
    frame = replace(fake.frame(), gpus=(gpu, replace(lost(1), lost=evil)))
    for keys in ((), PAGE):
        assert all(line.isprintable() for line in lines_of(screen_of(*frame.gpus, keys=keys)))
    assert "\x1b" not in render_text(frame, width=None)


@pytest.mark.slow
def test_ascii_means_ascii() -> None:
    process = replace(PROCESSES[0], command="訓練", user="ü", container="é")
    gpu = hopper(0, name="名", processes=(process,), clock_event_reasons=0x20)
    shown = screen_of(gpu, lost(1), ascii=True)
    for key in ("", *PAGE, "down", "escape", "exclamation_mark"):
        shown.press(*([key] if key else []))
        assert shown.text().isascii()


def test_the_page_of_problems_says_once_what_a_lost_gpu_lacks() -> None:
    shown = screen_of(hopper(0), lost(1), keys=("exclamation_mark",))
    text = "\n".join(lines_of(shown))
    assert text.count("the GPU is lost") == 1
    assert "GPU 1 n/a: all figures: the GPU is lost" in text


def text_of(*gpus: GpuRow) -> str:
    frame: Frame = replace(fake.frame(processes=0), gpus=gpus)
    return render_text(frame, width=None)


def test_once_says_all_of_it_in_tables() -> None:
    text = text_of(hopper(0), lost(1))
    head, first = (line.split() for line in text.splitlines() if line.startswith(("GPU  NAME", "  0  ")))
    assert {"SM%", "NVLink", "ENC/DEC%", "ECC", "FAN%"} <= set(head)
    assert {"82", "700/700W", "2.0G/3.0G", "20/0", "3/0", "512M/1.0G"} <= set(first)
    assert "GPU 1 ▲ the GPU is lost" in text
    assert "processes of GPU 0" in text
    assert "alice  [docker 0123456789ab] python train.py" in text
