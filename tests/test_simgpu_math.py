"""Simulated cuBLAS, cuBLASLt and cuDNN: a kernel as long as its shape and type ask for, or one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.simgpu import environment, read_log, read_trace
from tests.waiting import HANGS_S

_BLAS = """
import ctypes as c
b = c.CDLL("libcublas.so.{major}")
h = c.c_void_p()
assert b.cublasCreate_v2(c.byref(h)) == 0
n = None
"""
_LT = """
import ctypes as c
l = c.CDLL("libcublasLt.so.13")
def layout(type, rows, columns):
    x = c.c_void_p()
    sizes = c.c_uint64(rows), c.c_uint64(columns), c.c_int64(rows)
    assert l.cublasLtMatrixLayoutCreate(c.byref(x), type, *sizes) == 0
    return x
d, p, n = c.c_void_p(), c.c_void_p(), c.c_int()
assert l.cublasLtMatmulDescCreate(c.byref(d), 68, 0) == l.cublasLtMatmulPreferenceCreate(c.byref(p)) == 0
transposed, results = c.c_int(1), c.create_string_buffer(96 * 4)
assert l.cublasLtMatmulDescSetAttribute(d, 3, c.byref(transposed), c.c_size_t(4)) == 0
A, B, D = layout(14, 512, 4096), layout(14, 512, 8192), layout(14, 4096, 8192)
assert l.cublasLtMatmulAlgoGetHeuristic(None, d, A, B, D, D, p, 4, results, c.byref(n)) == 0
assert n.value == 1
one = c.c_float(1)
alpha = c.byref(one)
rest = (results, None, None, None)
assert l.cublasLtMatmul(None, d, alpha, None, A, None, B, alpha, None, D, None, D, *rest) == 0
"""
_CONVOLUTION = """
import ctypes as c
l = c.CDLL("libcudnn.so.9")
INT64, TYPE, DESCRIPTOR = 3, 1, 15
def make(kind, *attributes):
    x = c.c_void_p()
    assert l.cudnnBackendCreateDescriptor(kind, c.byref(x)) == 0
    for name, type, values in attributes:
        element = {INT64: c.c_int64, TYPE: c.c_int, DESCRIPTOR: c.c_void_p}[type]
        array = (element * len(values))(*values)
        assert l.cudnnBackendSetAttribute(x, name, type, c.c_int64(len(values)), array) == 0
    assert l.cudnnBackendFinalize(x) == 0
    return x
def tensor(*dims): return make(0, (901, TYPE, [2]), (902, INT64, dims))
X, W, Y = tensor(32, 256, 56, 56), tensor(256, 256, 3, 3), tensor(32, 256, 56, 56)
operation = make(0, (704, DESCRIPTOR, [X.value]), (703, DESCRIPTOR, [W.value]), (705, DESCRIPTOR, [Y.value]))
graph = make(0, (801, DESCRIPTOR, [operation.value]))
heuristics, configuration, n = make(0, (201, DESCRIPTOR, [graph.value])), make(0), c.c_int64()
into = (c.c_void_p * 1)(configuration.value)
assert l.cudnnBackendGetAttribute(heuristics, 202, DESCRIPTOR, c.c_int64(1), c.byref(n), into) == 0
plan = make(0, (401, DESCRIPTOR, [configuration.value]))
for x in (X, W, Y, operation, graph, heuristics, configuration):
    assert l.cudnnBackendDestroyDescriptor(x) == 0  # whoever names them holds them
h, size = c.c_void_p(), c.c_int64(-1)
assert l.cudnnCreate(c.byref(h)) == 0
assert l.cudnnBackendGetAttribute(plan, 402, INT64, c.c_int64(1), c.byref(n), c.byref(size)) == 0
assert size.value == 0
assert l.cudnnBackendExecute(h, plan, make(0)) == 0
"""
_WAIT = "\nassert c.CDLL('libcuda.so.1').cuCtxSynchronize() == 0\n"


class Run:
    """What a program on a simulated machine of its own did."""

    def __init__(self, directory: Path, body: str) -> None:
        settings = {
            "STATE": "state",
            "LOG": "log.json",
            "TRACE": "trace",
            "INIT_MS": "",
            "FIRST_LAUNCH_MS": "",
        }
        env = environment(os.environ)
        env |= {f"SIMGPU_{name}": str(directory / file) if file else "0" for name, file in settings.items()}
        done = subprocess.run(
            [sys.executable, "-c", body],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANGS_S,
        )
        assert done.returncode == 0, done.stderr
        self.said, self.warned = done.stdout, done.stderr
        self.kernels_ns: list[int] = []
        self.calls: Any = {}
        if (directory / "trace").exists():
            kernels = read_trace(directory / "trace").of(kinds={"kernel"})
            self.kernels_ns = [int(row["end"] - row["start"]) for row in kernels]
            (process,) = read_log(directory / "log.json")
            self.calls = process.calls


@pytest.mark.parametrize("major", [12, 13])
@pytest.mark.parametrize(
    ("call", "teraflops"),
    [
        ("cublasSgemm_v2(h, 0, 0, 4096, 2048, 1024)", 67),
        ("cublasSetMathMode(h, 3) or b.cublasSgemm_v2(h, 0, 0, 4096, 2048, 1024)", 495),
        ("cublasHgemm(h, 0, 1, 4096, 2048, 1024)", 989),
        ("cublasGemmEx(h, 1, 0, 4096, 2048, 1024, n, n, 14, 1, n, 14, 1, n, n, 14, 1, 68)", 989),
    ],
)
def test_a_product_lasts_as_its_operations_take_at_60_percent_of_the_peak(
    tmp_path: Path, major: int, call: str, teraflops: int
) -> None:
    run = Run(tmp_path, _BLAS.format(major=major) + f"assert b.{call} == 0" + _WAIT)
    assert run.kernels_ns == [pytest.approx(2 * 4096 * 2048 * 1024 / (0.6 * teraflops * 1e3), rel=0.01)]
    assert run.calls["cuLaunchKernel"] == 1, "probes see it where they see the real one's"


def test_a_batch_is_one_kernel_and_a_small_product_lasts_3_us(tmp_path: Path) -> None:
    matrices = "n, n, 2, 1, n, n, 2, 1, n, n, n, 2, 1, n"
    call = f"cublasGemmStridedBatchedEx(h, 0, 0, 1024, {{0}}, 64, {matrices}, {{1}}, 68, 0)"
    body = _BLAS.format(major=13) + "".join(
        f"assert b.{call.format(columns, count)} == 0\n" for columns, count in ((1024, 64), (8, 1))
    )
    batch, single = Run(tmp_path, body + _WAIT).kernels_ns
    assert batch > 10 * single
    assert single == 3000


def test_cublaslt_offers_one_algorithm_and_computes_by_stored_shapes(tmp_path: Path) -> None:
    run = Run(tmp_path, _BLAS.format(major=13) + _LT + _WAIT)
    assert run.kernels_ns == [pytest.approx(2 * 4096 * 8192 * 512 / (0.6 * 989e3), rel=0.01)]


def test_a_convolution_lasts_as_its_operations_take(tmp_path: Path) -> None:
    run = Run(tmp_path, _CONVOLUTION + _WAIT)
    flops = 2 * 32 * 56 * 56 * 256 * 256 * 3 * 3
    assert run.kernels_ns == [pytest.approx(flops / (0.6 * 989e3), rel=0.01)]


def test_what_is_not_simulated_says_so_once_and_fails(tmp_path: Path) -> None:
    body = _BLAS.format(major=12) + "print([b.cublasSsyrkx(h), b.cublasSsyrkx(h), b.cublasCgemm3m(h)])"
    run = Run(tmp_path, body)
    assert json.loads(run.said) == [15, 15, 15]
    assert run.warned.splitlines() == [
        "gputop simgpu: cublasSsyrkx is not simulated",
        "gputop simgpu: cublasCgemm3m is not simulated",
    ]
