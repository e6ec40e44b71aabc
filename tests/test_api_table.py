"""The table of traced functions and the cookies that carry it into the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes import api
from probes.code import cookies, libraries

SYMBOLS = Path(api.__file__).resolve().parents[1] / "gputop" / "simgpu" / "symbols"


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("cudaLaunchKernel_ptsz", "cudaLaunchKernel"),
        ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync"),
        ("cudaMemcpy_ptds", "cudaMemcpy"),
        ("cuMemAlloc_v2", "cuMemAlloc"),
        ("cudaGraphInstantiateWithFlags", "cudaGraphInstantiateWithFlags"),
        ("pncclAllReduce", "ncclAllReduce"),
    ],
)
def test_variants_are_one_api(symbol: str, name: str) -> None:
    assert api.base_name(symbol) == name


def test_every_row_has_a_cookie_that_names_it() -> None:
    for row in api.TABLE:
        assert api.BY_OP[cookies.encode(row, row.name) & 1023].name == row.name


def test_rows_follow_the_library_version() -> None:
    twelve = api.find("cudaMemcpyBatchAsync", "runtime", 12)
    thirteen = api.find("cudaMemcpyBatchAsync", "runtime", 13)
    newer = api.find("cudaMemcpyBatchAsync", "runtime", 14)
    assert twelve is not None
    assert thirteen is not None
    assert (twelve.stream, thirteen.stream) == ("[24]", "[16]")
    assert newer == thirteen


@pytest.mark.parametrize(
    ("symbol", "register"),
    [("cuCtxCreate", "rdx"), ("cuCtxCreate_v2", "rdx"), ("cuCtxCreate_v3", "r8"), ("cuCtxCreate_v4", "rcx")],
)
def test_rows_follow_the_variant_of_the_function(symbol: str, register: str) -> None:
    """The device is the last argument, and newer variants have more before it (cuda.h)."""
    row = api.find(symbol, "driver", 0)
    assert row is not None
    assert row.aux == register
    assert api.find("cuDevicePrimaryCtxRetain", "driver", 0) != row


def test_a_function_of_the_wrong_layer_is_not_traced() -> None:
    assert api.find("cudaMalloc", "driver", 0) is None
    assert api.find("cudaGetLastError", "runtime", 12) is None


@pytest.mark.parametrize(
    ("file", "layer", "major"),
    [
        ("cudart12.txt", "runtime", 12),
        ("cudart13.txt", "runtime", 13),
        ("cuda.txt", "driver", 0),
        ("nccl.txt", "nccl", 2),
    ],
)
def test_real_libraries_export_what_the_table_traces(file: str, layer: str, major: int) -> None:
    exported = {api.base_name(symbol) for symbol in (SYMBOLS / file).read_text().split()}
    rows = {row.name for row in api.TABLE if row.layer == layer and (not row.majors or major in row.majors)}
    later = {
        "cudaExecutionCtxSynchronize",
        "cudaMemcpyWithAttributesAsync",
        "cudaStreamBeginRecaptureToGraph",
    }
    missing = rows - exported - (later if major == 12 else set())
    assert missing == set()


def test_the_launch_stub_that_jumps_to_the_launch_is_not_counted_twice() -> None:
    assert api.find("__cudaLaunchKernel", "runtime", 13) is None


@pytest.mark.parametrize("bad", ["rbp", "[x]", "rdi->"])
def test_a_specification_that_cannot_be_encoded_is_refused(bad: str) -> None:
    row = api.Api("cudaMalloc", "runtime", "alloc", bytes=bad)
    with pytest.raises((cookies.ApiTableError, ValueError)):
        cookies.encode(row, "cudaMalloc")


@pytest.mark.parametrize(("stream", "aux"), [("*rsi", ""), ("*rdi", "*rdi"), ("", "*rsi")])
def test_only_one_result_at_the_first_argument_can_be_read(stream: str, aux: str) -> None:
    row = api.Api("cudaMalloc", "runtime", "alloc", stream=stream, aux=aux)
    with pytest.raises(cookies.ApiTableError):
        cookies.encode(row, "cudaMalloc")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("libcudart.so.12", ("runtime", 12)),
        ("libcudart.so.13.0.96", ("runtime", 13)),
        ("libcudart-a7b20f20.so.11.0", ("runtime", 11)),
        ("libcuda.so.1", ("driver", 1)),
        ("libcuda.so.580.65.06", ("driver", 580)),
        ("libnccl.so.2", ("nccl", 2)),
        ("libcudart_static.a", None),
        ("libcudadebugger.so.1", None),
    ],
)
def test_libraries_are_known_by_name(name: str, kind: tuple[str, int] | None) -> None:
    assert libraries.classify(name) == kind
