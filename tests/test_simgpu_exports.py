"""A probe finds in the simulated libraries what it would find in the real ones."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from gputop.simgpu import ensure_built
from gputop.simgpu.library_build import symbols
from tests.simgpu_programs import cuda_toolkit
from tests.simgpu_programs.harness import Bench, compile_c
from tests.waiting import HANGS_S

LIBRARIES = {
    "libcudart.so.12": "cudart12.txt",
    "libcudart.so.13": "cudart13.txt",
    "libcuda.so.1": "cuda.txt",
    "libnvidia-ml.so.1": "nvml.txt",
    "libnccl.so.2": "nccl.txt",
    "libcublas.so.12": "cublas12.txt",
    "libcublas.so.13": "cublas13.txt",
    "libcublasLt.so.12": "cublasLt12.txt",
    "libcublasLt.so.13": "cublasLt13.txt",
    "libcudnn.so.9": "cudnn9.txt",
}
needs_binutils = pytest.mark.skipif(
    shutil.which("readelf") is None, reason="readelf: apt-get install binutils"
)


def exports(library: Path) -> dict[str, tuple[int, str]]:
    """Returns each exported function with its address and version node."""
    text = subprocess.run(
        ["readelf", "-W", "--dyn-syms", str(library)], capture_output=True, text=True, check=True
    ).stdout
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[3] == "FUNC" and fields[6] not in {"UND", "Ndx"}:
            name, _, version = fields[7].partition("@")
            found[name] = (int(fields[1], 16), version.lstrip("@"))
    return found


def code_at(library: Path, address: int, size: int) -> bytes:
    """Reads machine code by address."""
    data = library.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 32)
    (count,) = struct.unpack_from("<H", data, 56)
    for i in range(count):
        kind, _, offset, start, _, length = struct.unpack_from("<IIQQQQ", data, table + 56 * i)
        if kind == 1 and start <= address < start + length:
            at = offset + address - start
            return data[at : at + size]
    raise AssertionError(f"{address:#x} is not in the file")


@needs_binutils
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_name_is_exported_and_no_other(library: str) -> None:
    assert set(exports(ensure_built() / library)) == set(symbols(LIBRARIES[library]))


@needs_binutils
@pytest.mark.parametrize("major", [12, 13])
def test_names_and_version_nodes_are_those_of_the_real_library(major: int) -> None:
    name = f"libcudart.so.{major}"
    real = {k: v for k, (_, v) in exports(cuda_toolkit.real_runtime(major)).items()}
    assert len(real) > 400
    assert {k: v for k, (_, v) in exports(ensure_built() / name).items()} == real


@needs_binutils
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_function_starts_with_push_rbp(library: str) -> None:
    path = ensure_built() / library
    wrong = [n for n, (address, _) in exports(path).items() if code_at(path, address, 1) != b"\x55"]
    assert wrong == []


@needs_binutils
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_other_variant_starts_with_endbr64(library: str) -> None:
    path = ensure_built(endbr=True) / library
    start = b"\xf3\x0f\x1e\xfa\x55"
    wrong = [n for n, (address, _) in exports(path).items() if code_at(path, address, 5) != start]
    assert wrong == []


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump: apt-get install binutils")
@pytest.mark.parametrize("suffix", ["", "_ptsz"])
def test_the_launch_stub_jumps_in_the_same_frame(suffix: str) -> None:
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(ensure_built() / "libcudart.so.13")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    body = re.search(rf"<(?:entry_)?__cudaLaunchKernel{suffix}(?:@\S+)?>:\n(.*?)\n\n", text, re.DOTALL)
    assert body is not None
    assert re.search(rf"pop\s+%rbp\n.*jmp.*<(?:entry_)?cudaLaunchKernel{suffix}(?:@\S+)?>", body[1])


def test_a_call_through_the_stub_counts_for_both_names(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(
        "c = Cuda('libcudart.so.13'); c.lib['cudaLaunchKernel']\n"
        "import ctypes\nfrom cuda import _ONE\n"
        "for name in ['__cudaLaunchKernel'] * 3 + ['__cudaLaunchKernel_ptsz']:\n"
        "    assert c.lib[name](ctypes.c_void_p(4096), _ONE, _ONE, None, ctypes.c_size_t(0), None) == 0\n"
    )
    (process,) = bench.processes()
    assert {k: v for k, v in process.calls.items() if "LaunchKernel" in k} == {
        "__cudaLaunchKernel": 3,
        "__cudaLaunchKernel_ptsz": 1,
        "cudaLaunchKernel": 3,
        "cudaLaunchKernel_ptsz": 1,
        "cuLaunchKernel": 3,
        "cuLaunchKernel_ptsz": 1,
    }


def test_what_is_not_simulated_says_so_and_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    result = bench.run(
        "import ctypes\nc = Cuda(); d = ctypes.CDLL('libcuda.so.1')\n"
        "print(json.dumps([c.GraphDebugDotPrint(None, None, 0), d.cuTexObjectCreate(None, None)]))"
    )
    assert result == [801, 801]
    (process,) = bench.processes()
    assert process.calls["cudaGraphDebugDotPrint"] == 1
    assert process.calls["cuTexObjectCreate"] == 1


def test_the_entry_points_a_program_asks_for_are_the_exported_ones(tmp_path: Path) -> None:
    result = Bench(tmp_path).run(
        "import ctypes\nd = ctypes.CDLL('libcuda.so.1'); d.cuInit(0); r = []\n"
        "for name, flags, suffix in [('cuLaunchKernel', 0, ''), ('cuMemAlloc', 0, '_v2'),\n"
        "        ('cuStreamSynchronize', 2, '_ptsz'), ('cuMemcpyHtoD', 2, '_v2_ptds')]:\n"
        "    p = ctypes.c_void_p()\n"
        "    e = d.cuGetProcAddress_v2(name.encode(), ctypes.byref(p), 12000, ctypes.c_uint64(flags), None)\n"
        "    r.append([e, p.value == ctypes.cast(d[name + suffix], ctypes.c_void_p).value])\n"
        "p = ctypes.c_void_p()\n"
        "r.append(d.cuGetProcAddress_v2(b'cuNoSuch', ctypes.byref(p), 12000, ctypes.c_uint64(0), None))\n"
        "print(json.dumps(r))"
    )
    assert result == [[0, True]] * 4 + [500]


@pytest.mark.skipif(shutil.which("bpftrace") is None or os.geteuid() != 0, reason="needs root and bpftrace")
def test_probes_see_what_the_log_says(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    program = compile_c("basic.c", tmp_path / "basic")
    directory = ensure_built()
    probes = {"libcudart.so.13": "cuda", "libcuda.so.1": "cu"}
    script = "".join(
        f"uprobe:{directory / library}:{prefix}{name} /pid == cpid/ {{ @{prefix}{name} = count(); }}\n"
        f"uretprobe:{directory / library}:{prefix}{name} /pid == cpid/ {{ @{prefix}{name}_ret = count(); }}\n"
        for library, prefix in probes.items()
        for name in ("LaunchKernel", "StreamQuery")
    )
    out = subprocess.run(
        ["bpftrace", "-e", script, "-c", f"{program} libcudart.so.13 4 3000 _exit"],
        env=bench.env | {"SIMGPU_LAUNCH_NS": "0"},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_S,
    ).stdout
    seen = dict(re.findall(r"@(\w+): (\d+)", out))
    (process,) = bench.processes()
    for prefix in probes.values():
        for name, count in (("LaunchKernel", 12_000), ("StreamQuery", 120)):
            assert process.calls[prefix + name] == count
            assert int(seen[prefix + name]) == int(seen[f"{prefix}{name}_ret"]) == count
