"""How long kernels last: by rules of their names and grids, or as a library that knows better says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gputop.simgpu import read_trace
from tests.simgpu_programs.harness import DRIVER, Bench, compile_c

ELEMENTWISE = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEv"
FLASH = b"_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsEEvNS_16Flash_fwd_paramsE"


def durations(bench: Bench, body: str, **env: str) -> list[int]:
    """Runs launches one after the other; how long each lasted."""
    trace = bench.directory / "trace"
    bench.run(f"{DRIVER}{body}\nassert d.cuCtxSynchronize() == 0", SIMGPU_TRACE=str(trace), **env)
    rows = read_trace(trace).rows
    lasted: list[int] = (rows["end"] - rows["start"]).tolist()
    return lasted


@pytest.mark.parametrize(
    ("name", "grid", "block", "lasts"),
    [
        (ELEMENTWISE, 1, 128, 1_500 + 2_500),
        (ELEMENTWISE, 132 * 16, 128, 1_500 + 2_500),
        (ELEMENTWISE, 132 * 16 + 1, 128, 1_500 + 2 * 2_500),
        (ELEMENTWISE, 132 * 32 * 3, 1, 1_500 + 3 * 2_500),
        (FLASH, 132 * 2 * 5, 1024, 4_000 + 5 * 40_000),
        (b"_ZN3cub11DeviceRadixSortOnesweepKernel", 1, 256, 3_000 + 8_000),
        (b"cublasLt::splitKreduce_kernel<32, 16, int, float>", 1, 512, 2_500 + 3_000),
        (b"ampere_sgemm_128x64_nn", 132, 1024, 4_000 + 120_000),
        (b"triton_poi_fused_add_0", 1, 128, 1_500 + 2_500),
        (b"_ZN2at6native24index_elementwise_kernelILi128ELi4EZNS0_", 1, 128, 2_000 + 4_000),
        (b"_ZN2at6native18elementwise_kernelILi128EZNS0_16topk_fill_reduce", 1, 128, 1_500 + 2_500),
        (b"_ZN2at6native45_GLOBAL__N__1a09_12_attention_cu_b3bc19rand_kernel", 1, 128, 2_000 + 4_000),
        (b"_ZN2at6native25multi_tensor_apply_kernelINS1_18TensorListMetadata", 1, 512, 4_000 + 20_000),
        (b"of_nobody_known", 1000, 128, 5_000),
    ],
)
def test_the_usual_rules_know_the_kernels_of_frameworks(
    bench: Bench, name: bytes, grid: int, block: int, lasts: int
) -> None:
    """Waves of what 132 multiprocessors hold: 32 blocks or 2048 threads each."""
    assert durations(bench, f"assert launch(kernel({name!r}), 64, {grid}, {block}) == 0") == [lasts]


def test_a_kernel_that_sleeps_for_cycles_does_so(bench: Bench) -> None:
    spins = b"_ZN2at4cuda40_GLOBAL__N__b51f33dc_8_Sleep_cu_088d913f11spin_kernelEl"
    assert durations(bench, f"assert launch(kernel({spins!r}), 1_755_000) == 0") == [1_000_000]


def test_own_rules_stand_in_a_file_and_the_first_that_fits_holds(bench: Bench) -> None:
    rules = bench.directory / "rules"
    rules.write_text("# name fixed wave class\n\nspecial 100 0 tensor\nkernel 1000 500\n")
    body = "for n in (b'a_kernel', b'special_kernel', b'other', b'simgpu_kernel'): launch(kernel(n), 70_000)"
    lasted = durations(bench, body, SIMGPU_KERNEL_RULES=str(rules), SIMGPU_KERNEL_NS="9000")
    assert lasted == [1_500, 100, 9_000, 70_000], "what a kernel declares comes first"


@pytest.mark.parametrize("text", ["short 100\n", "x 1 1 nosuchclass\n", "x one 2 tensor\n"])
def test_a_line_that_is_no_rule_is_named(bench: Bench, text: str) -> None:
    rules = bench.directory / "rules"
    rules.write_text(f"{text}k 100 200 tensor\n")
    out = subprocess.run(
        ["python3", "-c", f"{DRIVER}kernel(b'k')"],
        env=bench.env | {"SIMGPU_KERNEL_RULES": str(rules)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'simgpu: {rules}: "{text.strip()}" is no rule' in out.stderr
    assert out.stderr.count("\n") == 1


WORK = (
    "class W(ctypes.Structure): _fields_ = (('ns', ctypes.c_uint64), ('use', ctypes.c_uint16 * 4))\n"
    "t = ctypes.POINTER(P)(); assert d.cuGetExportTable(ref(t), b'gputop-simgpu-01') == 0\n"
    "next_work = ctypes.CFUNCTYPE(None, P)(t[6])\n"
    "def gemm(ns, stream=None):\n"
    "    w = W(ns, (900, 200, 600, 300)); next_work(ctypes.addressof(w))\n"
    "    return launch(kernel(b'sm90_gemm'), 64, 100, 256, stream)\n"
)


def test_a_library_says_how_long_its_next_launch_lasts(bench: Bench) -> None:
    body = "assert gemm(77_000) == launch(kernel(b'sm90_gemm'), 64, 132, 1024) == gemm(88_000) == 0"
    assert durations(bench, WORK + body) == [77_000, 124_000, 88_000]
    assert bench.processes()[0].calls["cuLaunchKernel"] == 3, "by the name that probes know"


def test_a_launch_that_fails_leaves_nothing_to_the_next(bench: Bench) -> None:
    body = (
        "w = W(77_000); next_work(ctypes.addressof(w)); assert launch(P(5), 64) == 400\n"
        "next_work(ctypes.addressof(w)); assert launch(kernel(b'x'), 64, 0) == 1\n"
        "assert launch(kernel(b'of_nobody_known'), 64) == 0"
    )
    assert durations(bench, WORK + body) == [5_000]


def test_a_graph_keeps_what_a_library_said(bench: Bench) -> None:
    body = (
        "s, g, x = P(), P(), P(); assert d.cuStreamCreate(ref(s), 1) == 0\n"
        "assert d.cuStreamBeginCapture_v2(s, 0) == gemm(30_000, s) == gemm(40_000, s) == 0\n"
        "assert d.cuStreamEndCapture(s, ref(g)) == 0\n"
        "assert d.cuGraphInstantiateWithFlags(ref(x), g, ctypes.c_ulonglong(0)) == 0\n"
        "assert d.cuGraphLaunch(x, s) == 0"
    )
    assert durations(bench, WORK + body) == [70_000]


FP32, TF32, FP16 = 1, 2, 3


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c("gemm.c", tmp_path_factory.mktemp("gemm") / "gemm")


@pytest.mark.parametrize(
    ("kind", "shape", "peak", "tensor"),
    [
        (FP32, (4096, 4096, 4096, 1), 67e3, 0),
        (TF32, (2048, 2048, 1024, 8), 495e3, 600),
        (FP16, (8192, 8192, 8192, 1), 989e3, 600),
    ],
)
def test_a_large_product_lasts_as_long_as_its_operations(
    program: Path, kind: int, shape: tuple[int, ...], peak: float, tensor: int
) -> None:
    m, n, k, batch = shape
    out = subprocess.run(
        [str(program), str(kind), *map(str, shape)], capture_output=True, text=True, check=True
    ).stdout
    lasts, sm, used, dram = json.loads(out)
    assert lasts == pytest.approx(2 * m * n * k * batch / (0.6 * peak), rel=1e-3)
    assert used == tensor
    assert sm == 950
    assert 0 < dram < 500


def test_a_small_product_has_a_least_duration_and_a_thin_one_waits_for_memory(program: Path) -> None:
    def ask(*arguments: int) -> tuple[int, ...]:
        command = [str(program), *map(str, arguments)]
        return tuple(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))

    assert ask(FP16, 64, 64, 64, 1)[:2] == (3_000, 950 // 132)
    lasts, _, tensor, dram = ask(FP16, 1, 8192, 8192, 1)
    assert lasts == pytest.approx(2 * 8192 * 8192 / (0.9 * 3350), rel=1e-3)
    assert (tensor, dram) == (pytest.approx(3, abs=2), 900)
