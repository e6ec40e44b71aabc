"""Launches by kernel: counted by handle, named by the host's function, told once, shown folded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gputop.engine.calls.launch_counts import KernelRow, by_folded_name, folded
from gputop.engine.engine import Engine
from gputop.engine.frame import ProcessRow
from gputop.engine.session_totals import collect, finish
from gputop.engine.stats_output import stats_to_json, stats_to_text
from gputop.engine.tally import tally
from probes.code.layout import FIRST_STACK, HANDLE_DTYPE, HANDLE_NAME_BYTES
from probes.source import FRAMES, Item, Sample
from probes.stacks.kernel_resolver import Kernel, Kernels
from probes.stacks.native_frames import Frame, NotYet
from probes.stacks.stack_samples import kernel_address, kernel_number
from tests import fake_frames as fake
from tests import items
from tests.items import HEADER, MS, SECOND, START
from tests.json_page import assert_valid
from tests.screen_support import Shown

TORCH, OWN = "/venv/torch/lib/libtorch_cuda.so", "/home/me/app"
ADD, MUL, SUM, HANDLE = 0x7F00_0000_1000, 0x7F00_0000_2000, 0x7F00_0000_3000, 0x5500_0000
NAMES = {ADD: (TORCH, "void f<1, g<2> >(int)"), MUL: (TORCH, "void f<2>(int)"), SUM: (OWN, "sum(float*)")}


def named(pid: int = 10) -> Sample:
    data = {
        "pid": [pid] * len(NAMES),
        "stack": [kernel_number(pid, address) for address in NAMES],
        "frames": [[[file, 0, name]] for file, name in NAMES.values()],
    }
    return Sample(FRAMES, START, data)


def launch(at_ms: int, kernel: int, op: str = "cudaLaunchKernel", **more: int) -> Item:
    return items.call(START + at_ms * MS, 1000, op, aux=kernel, **more)


def launches() -> list[Item]:
    """Three of one kernel, two of another, one each of two more, and what is none."""
    rows = [ADD, MUL, ADD, SUM, MUL, ADD]
    made = [launch(at, kernel) for at, kernel in enumerate(rows)]
    made += [launch(7, ADD, nested=1), launch(8, ADD, ret=1), launch(9, HANDLE, "cuLaunchKernel")]
    return [*made, launch(10, 5, "cudaEventRecord")]


def told_rows(*samples: Item) -> dict[str, int]:
    stream = [items.apis(), items.process(10), *samples, *launches(), items.mark(1, START + SECOND)]
    (process,) = collect(HEADER, stream).processes
    return {row.shown: row.launches for row in process.kernels}


def test_launches_are_counted_by_kernel_outermost_ones_that_succeeded() -> None:
    assert told_rows(named()) == {
        "void f<1, g<2> >(int)": 3,
        "void f<2>(int)": 2,
        "sum(float*)": 1,
        f"handle {HANDLE:#x}": 1,
    }


def test_where_no_kernel_has_a_name_none_is_reported() -> None:
    assert told_rows() == {}
    assert told_rows(named(pid=11)) == {}


def test_sums_of_two_parts_are_those_of_the_whole() -> None:
    stream = [items.apis(), items.process(10), named(), *launches(), items.mark(1, START + SECOND)]
    whole = collect(HEADER, stream)
    first, second = tally([*stream[:7], stream[-1]]), tally(stream[7:])
    first.merge(second.payload())
    assert finish(HEADER, first).processes[0].kernels == whole.processes[0].kernels


def test_json_and_text_of_the_totals_show_them() -> None:
    stream = [items.apis(), items.process(10), named(), *launches(), items.mark(1, START + SECOND)]
    stats = collect(HEADER, stream)
    document = stats_to_json(stats)
    assert_valid(document)
    (process,) = document["processes"]
    first = {"name": "void f<1, g<2> >(int)", "file": TORCH, "library": "torch", "handle": ADD, "launches": 3}
    unknown = {"shapes": [], "unshaped": 3, "small": None}
    assert process["kernels"][0] == {**first, **unknown, "per_second": 3.0}  # of a recording of one second
    assert "3       3  torch          void f<1, g<2> >(int)" in stats_to_text(stats, None)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::reduce_kernel<128, 4, F<float> >(F<float>)", "at::native::reduce_kernel<…>"),
        ("void at::native::(anonymous namespace)::apply<A<1>, B>(int)", "at::native::apply<…>"),
        ("add(float const*, int)", "add"),
        ("void cut<128, at::native::func_wrapper_t<float, at…", "cut<…>"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ],
)
def test_a_name_is_folded_to_what_a_person_reads(name: str, short: str) -> None:
    assert folded(name) == short


def test_kernels_that_differ_in_templates_are_one_line_with_their_number() -> None:
    rows = [KernelRow(name, file, at, 10 - at) for at, (file, name) in enumerate(NAMES.values())]
    found = by_folded_name(rows)
    assert [row[:4] for row in found] == [("f<…>", "torch", 19, 2), ("sum", "app", 8, 1)]


# -- names, as they are found -------------------------------------------------------------------


class Finder:
    def __init__(self, answers: dict[int, Frame | None], late: int = 0) -> None:
        self.answers, self.late = answers, late
        self.asked: list[Kernel] = []

    def __call__(self, pid: int, address: int, _time_ns: int) -> Frame | None:
        self.asked.append((pid, address))
        if self.late:
            self.late -= 1
            raise NotYet
        return self.answers.get(address)


def test_a_kernel_is_looked_up_once_and_reported_once() -> None:
    finder = Finder({ADD: (TORCH, 0, "f")})
    kernels = Kernels(finder)
    for _ in range(3):
        kernels.notice(launch(1, ADD))  # type: ignore[arg-type]
    assert list(kernels.resolved()) == [(10, kernel_number(10, ADD), (TORCH, 0, "f"))]
    assert not list(kernels.resolved())
    assert finder.asked == [(10, ADD)]


def test_a_file_whose_symbols_are_being_read_is_asked_again() -> None:
    kernels = Kernels(Finder({ADD: (TORCH, 0, "f")}, late=2))
    kernels.notice(launch(1, ADD))  # type: ignore[arg-type]
    assert [len(list(kernels.resolved())) for _ in range(3)] == [0, 0, 1]


def test_what_stays_unknown_is_given_up_and_handles_of_the_driver_are_never_requested() -> None:
    finder = Finder({})
    kernels = Kernels(finder)
    kernels.notice(items.joined([launch(1, ADD), launch(2, HANDLE, "cuLaunchKernel")]))  # type: ignore[list-item]
    for _ in range(100):
        assert not list(kernels.resolved())
    assert set(finder.asked) == {(10, ADD)}
    assert len(finder.asked) < 100


def told_name(handle: int, name: bytes, other: int = 0, pid: int = 10, caller: int = 7) -> bytes:
    """What the kernel's program tells when somebody asks the driver for a kernel."""
    row = np.zeros(1, HANDLE_DTYPE)
    row["kind"], row["pid"], row["handle"], row["other"], row["caller"] = 5, pid, handle, other, caller
    row["name"] = np.frombuffer(name.ljust(HANDLE_NAME_BYTES, b"\0"), f"V{HANDLE_NAME_BYTES}")
    return row.tobytes()


def of_handles() -> Kernels:
    return Kernels(
        Finder({}), file_of=lambda _pid, caller, _time: {7: "/lib/libcublas.so.12"}.get(caller, "")
    )


def launch_by(kernels: Kernels, handle: int) -> list[str]:
    """The names that are reported for a launch by a handle of the driver's."""
    kernels.notice(launch(1, handle, "cuLaunchKernel"))  # type: ignore[arg-type]
    return [frame[2] for _, number, frame in kernels.resolved() if number == kernel_number(10, handle)]


def test_a_handle_is_called_what_was_requested_and_lies_in_the_file_that_asked() -> None:
    kernels = of_handles()
    kernels.hear(told_name(HANDLE, b"_Z4gemmPfi"))
    kernels.notice(launch(1, HANDLE, "cuLaunchKernelEx"))  # type: ignore[arg-type]
    frame = ("/lib/libcublas.so.12", 0, "gemm(float*, int)")
    assert list(kernels.resolved()) == [(10, kernel_number(10, HANDLE), frame)]
    assert not list(kernels.resolved())


def test_another_handle_of_the_same_kernel_has_its_name() -> None:
    kernels = of_handles()
    kernels.hear(told_name(HANDLE, b"gemm"))
    kernels.hear(told_name(HANDLE + 8, b"", other=HANDLE))
    assert launch_by(kernels, HANDLE + 8) == ["gemm"]
    kernels.hear(told_name(HANDLE + 16, b"", other=HANDLE + 99))  # of one that nobody knows
    assert launch_by(kernels, HANDLE + 16) == []


def test_a_name_that_comes_after_the_first_launch_is_reported_then() -> None:
    kernels = of_handles()
    assert launch_by(kernels, HANDLE) == []
    kernels.hear(told_name(HANDLE, b"late"))
    assert [frame[2] for _, _, frame in kernels.resolved()] == ["late"]


def test_a_handle_that_goes_to_another_kernel_says_so() -> None:
    kernels = of_handles()
    kernels.hear(told_name(HANDLE, b"first"))
    assert launch_by(kernels, HANDLE) == ["first"]
    kernels.hear(told_name(HANDLE, b"first"))
    assert not list(kernels.resolved())
    kernels.hear(told_name(HANDLE, b"second"))
    (told,) = kernels.resolved()
    assert told[2][2] == "second (handle reused: earlier launches were of other kernels)"


def test_handles_of_another_process_or_one_that_ended_have_no_name() -> None:
    kernels = of_handles()
    kernels.hear(told_name(HANDLE, b"theirs", pid=11))
    assert launch_by(kernels, HANDLE) == []
    kernels.hear(told_name(HANDLE, b"mine"))
    kernels.forget([10])
    assert launch_by(kernels, HANDLE) == []


def test_a_number_used_by_a_new_process_is_requested_again() -> None:
    finder = Finder({ADD: (TORCH, 0, "f")})
    kernels = Kernels(finder)
    for _ in range(2):
        kernels.notice(launch(1, ADD))  # type: ignore[arg-type]
        assert len(list(kernels.resolved())) == 1
        kernels.forget([10])


def test_numbers_of_kernels_are_no_numbers_of_stacks_and_differ() -> None:
    for pid, address in ((1, 0x10), (40, 0x7FFF_FFFF_FFF0), (10_000_001, 0x5500_0000_0000)):
        assert kernel_address(pid, kernel_number(pid, address)) == address
    numbers = {kernel_number(pid, 0x7F00_0000_0000 + 16 * at) for pid in range(1, 40) for at in range(2000)}
    assert len(numbers) == 39 * 2000
    assert all(1 << 61 <= number < FIRST_STACK for number in numbers)


# -- on the screen ------------------------------------------------------------------------------


def test_a_frame_has_the_launches_of_its_window() -> None:
    engine = Engine(HEADER)
    for item in (items.apis(), items.process(10), named(), *launches(), items.mark(1, START + 100 * MS)):
        engine.feed(item)
    row: ProcessRow = engine.frame().processes[0]
    assert sum(kernel.launches for kernel in row.kernels) == 7
    for number in range(2, 40):
        engine.feed(items.mark(number, START + number * 100 * MS))
    assert not engine.frame().processes[0].kernels


def test_the_tab_of_kernels_is_there_where_they_have_names() -> None:
    frame = fake.frame(processes=1)
    pid = frame.processes[0].pid
    rows = tuple(KernelRow(name, file, at, 500) for at, (file, name) in enumerate(NAMES.values()))
    with Shown(frame, selected_pid=pid) as shown:
        assert "Kernels" not in shown.text()
        process = replace(frame.processes[0], kernels=rows)
        shown.show(replace(frame, number=frame.number + 1, processes=(process,)))
        lines = shown.text().splitlines()
        (y,) = [place for place, row in enumerate(lines) if "Flame  Kernels" in row]
        shown.click(lines[y].index("Kernels"), y)
        (line,) = [row for row in shown.text().splitlines() if "f<…>" in row]
        assert "torch" in line
        assert "2 kernels" in line
        assert "67" in line  # of a hundred launches
