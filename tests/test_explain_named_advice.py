"""Findings name kernels: those to fuse, those too small to fill the GPU, those of single elements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.analysis.answer.report import Finding
from gputop.analysis.build import explain
from gputop.analysis.causes.launch_sites import is_elementwise
from probes.source import FRAMES, GPUS, SHAPES, Sample
from probes.stacks.stack_samples import kernel_number
from tests.items import START
from tests.programs import EVENT_QUERY, KERNEL, LAUNCH, MAIN, RECORD, SYNC, Program, started
from tests.simulated import SECOND, Deed, Machine, launches

ADD, GEMM = 0x7000, 0x8000
LINE = (1 << 62) + 8
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
GPU = Sample(GPUS, START, {"gpus": [{"index": 0, "multiprocessors": 132, "multiprocessor_threads": 2048}]})
UNKNOWN_GPU = Sample(GPUS, START, {"gpus": [{"index": 1}]})
TINY, HUGE = [10, 1, 1, 512, 1, 1, 0], [4096, 8, 1, 256, 1, 1, 0]


def names(add: str = ELEMENTWISE) -> list[Sample]:
    stacks = [kernel_number(MAIN, ADD), kernel_number(MAIN, GEMM), LINE]
    frames = [[["/t/libtorch_cuda.so", 0, add]], [["/t/libcublas.so", 0, "gemm"]], [["/a/train.py", 7, "f"]]]
    return [
        Sample(FRAMES, START, {"pid": [MAIN] * 3, "stack": stacks, "frames": frames}),
        Sample(SHAPES, START, {"shape": [1, 2], "sizes": [TINY, HUGE]}),
    ]


def launch_bound(samples: list[Sample], *, each_add: int = 2, shape: int = 1) -> Program:
    """A program that launches without a pause; of two launches one is add's."""
    program, now = started(), 0
    program.samples += samples
    for number in range(4000):
        kernel = GEMM if number % each_add else ADD
        program.call(LAUNCH, now, now + 8, aux=kernel, stack=LINE, run_delay=shape)
        now += 10
        if number % 400 == 399:
            program.call(SYNC, now, now + 20)
            now += 30
    return program


def finding_of(program: Program, gpus: tuple[Sample, ...] = (GPU,), cause: str = "C06") -> Finding:
    report = explain(replace(program.evidence(), gpus=gpus))
    (finding,) = [one for one in report.findings if one.cause == cause]
    return finding


def test_a_launch_bound_program_is_told_which_kernels_to_fuse_and_where() -> None:
    advice = finding_of(launch_bound(names())).advice
    assert advice[-1] == (
        "fuse these kernels, each of which works on every element by itself (torch.compile): "
        "at::native::vectorized_elementwise_kernel<…> 50 % at train.py:7 in f()"
    )


@pytest.mark.parametrize(("samples", "each_add"), [(names(add="scan"), 2), (names(), 10), ([], 2)])
def test_without_elementwise_kernels_or_with_few_nothing_is_to_be_fused(
    samples: list[Sample], each_add: int
) -> None:
    advice = finding_of(launch_bound(samples, each_add=each_add)).advice
    assert not any("fuse these" in text for text in advice)


def test_launches_that_cannot_fill_the_gpu_are_named_with_their_shape_and_line() -> None:
    (said,) = [text for text in finding_of(launch_bound(names())).evidence if "too few threads" in text]
    assert said.startswith("100 % of launches have too few threads to fill the GPU by themselves: ")
    assert "gemm <<<10, 512>>> at train.py:7 in f()" in said


@pytest.mark.parametrize("shape", [0, 2, 99])
def test_large_and_unknown_shapes_are_not_called_small(shape: int) -> None:
    evidence = finding_of(launch_bound(names(), shape=shape)).evidence
    assert not any("too few threads" in text for text in evidence)


@pytest.mark.parametrize("gpus", [(), (UNKNOWN_GPU,), (GPU, UNKNOWN_GPU)])
def test_where_the_size_of_a_gpu_is_not_known_nothing_is_called_small(gpus: tuple[Sample, ...]) -> None:
    evidence = finding_of(launch_bound(names()), gpus).evidence
    assert any(text.startswith("launched most") for text in evidence)
    assert not any("too few threads" in text for text in evidence)


def busy(*names: str, dram: int, sm: int) -> tuple[str, ...]:
    """The grounds of the class of a busy GPU, which runs as many kernels of each name."""
    machine = Machine()
    for number in range(300):
        machine.run([*launches([2_000] * len(names)), *([Deed("read")] if number % 50 == 0 else [])])
    figures = {"sm_active_percent": sm, "tensor_active_percent": 1, "dram_bandwidth_percent": dram}
    for at in range(SECOND // 4, machine.length, SECOND // 4):
        machine.nvml(at, utilization_percent=99, **figures)
    program = machine.finished()
    stacks = [kernel_number(MAIN, KERNEL + number) for number in range(len(names))]
    frames = [[["/t/libtorch_cuda.so", 0, name]] for name in names]
    data = {"pid": [MAIN] * len(names), "stack": stacks, "frames": frames}
    program.samples.append(Sample(FRAMES, START, data))
    diagnosis = explain(program.evidence()).diagnosis
    assert diagnosis is not None
    return diagnosis.evidence


def test_a_memory_bound_program_is_told_its_elementwise_kernels() -> None:
    said = busy(ELEMENTWISE, "gemm", ELEMENTWISE, "scan", dram=85, sm=95)
    assert said[-1] == (
        "elementwise kernels, of all launches: at::native::vectorized_elementwise_kernel<…> 50 %"
    )
    assert not any("elementwise" in text for text in busy("gemm", "scan", dram=85, sm=95))
    assert not any("elementwise" in text for text in busy(ELEMENTWISE, "gemm", dram=10, sm=95))


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("at::native::vectorized_elementwise_kernel<…>", True),
        ("at::native::index_elementwise_kernel<…>", True),
        ("at::native::multi_tensor_apply_kernel<…>", True),
        ("triton_poi_fused_add_relu_0", True),
        ("triton_red_fused_sum_1", False),
        ("at::native::reduce_kernel<…>", False),
        ("sm90_xmma_gemm_f32f32", False),
    ],
)
def test_kernels_of_single_elements_are_reported_by_their_names(name: str, each: bool) -> None:
    assert is_elementwise(name) is each


@pytest.mark.parametrize(("work_us", "small"), [(600, True), (6000, False)])
def test_small_kernels_are_not_held_against_long_work_between_launches(work_us: int, small: bool) -> None:
    program = started()
    program.samples += names()
    for now in range(0, 60 * work_us, work_us):
        program.call(LAUNCH, now, now + 10, aux=GEMM, stack=LINE, run_delay=1)
        program.call(RECORD, now + 16, now + 18, aux=5)
        program.call(EVENT_QUERY, now + 60, now + 62, aux=5)
    finding = finding_of(program, cause="C06" if small else "C28")
    assert any("too few threads" in text for text in finding.evidence) is small
