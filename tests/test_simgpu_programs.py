"""Programs that were not written for the simulation run on it unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gputop.simgpu import ensure_built
from tests.simgpu_programs import cuda_toolkit
from tests.simgpu_programs.harness import HERE, Bench, compile_c, figures, measured
from tests.waiting import until_good


def compile_cu(major: int, directory: Path) -> Path:
    """Compiles with an unmodified nvcc, linked to the real library of a version."""
    nvcc = cuda_toolkit.compiler()
    (directory / "libcudart.so").symlink_to(cuda_toolkit.real_runtime(major))
    output = directory / "vector_add"
    source = str(HERE / "vector_add.cu")
    subprocess.run([str(nvcc), "-cudart", "shared", "-o", str(output), source, f"-L{directory}"], check=True)
    return output


@pytest.mark.timed
@pytest.mark.parametrize("major", [12, 13])
@pytest.mark.mainly("13")
def test_a_program_compiled_by_nvcc(tmp_path: Path, major: int) -> None:
    program = compile_cu(major, tmp_path)
    bench = Bench(tmp_path)

    def milliseconds() -> float:
        """Of its events; longer than they should be where the program stood still for 200 ms."""
        bench.log.unlink(missing_ok=True)
        out = subprocess.run([str(program)], env=bench.env, capture_output=True, text=True, check=True).stdout
        assert out.startswith("SimGPU 80GB 9.0 ")
        assert out.split()[4] == str(80 << 30)
        assert out.endswith(" 1\n"), "what was copied to the device comes back"
        (log,) = bench.processes()
        expected = {
            "cudaLaunchKernel": 12,
            "cuLaunchKernel": 12,
            "cudaMalloc": 3,
            "__cudaRegisterFunction": 2,
        }
        assert {name: log.calls[name] for name in expected} == expected
        busy = 200_000_000 + 10 * 5000 + 5_000_000
        assert log.kernel_busy_ns == busy, "a pointer as first argument is no duration"
        return float(out.split()[5])

    assert until_good(milliseconds, lambda ms: ms < 5.051) == pytest.approx(5.05, abs=0.001)


@pytest.mark.long
@pytest.mark.parametrize("major", [12, 13])
def test_the_same_program_with_the_real_library_lacks_a_driver(tmp_path: Path, major: int) -> None:
    if any(Path(p).exists() for p in ("/dev/nvidiactl", "/dev/nvidia0")):
        pytest.skip("this machine has a GPU")
    program = compile_cu(major, tmp_path)
    env = os.environ | {"LD_LIBRARY_PATH": str(cuda_toolkit.real_runtime(major).parent)}
    result = subprocess.run([str(program)], env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "driver version is insufficient" in result.stdout


@pytest.mark.parametrize("major", [12, 13])
def test_without_the_driver_library_the_answer_is_35_as_in_reality(tmp_path: Path, major: int) -> None:
    name = f"libcudart.so.{major}"
    shutil.copy(ensure_built() / name, tmp_path / name)
    bench = Bench(tmp_path)
    result = bench.run(
        "import ctypes\nc = Cuda(); n = ctypes.c_int(5); c.lib.cudaGetErrorString.restype = ctypes.c_char_p\n"
        "print(json.dumps([c.GetDeviceCount(ctypes.byref(n)), n.value, c.GetLastError(), c.launch(1),\n"
        "  c.DriverGetVersion(ctypes.byref(n)), n.value, c.lib.cudaGetErrorString(35).decode()]))",
        LD_LIBRARY_PATH=str(tmp_path),
        TEST_CUDART=name,
    )
    assert result[:6] == [35, 0, 35, 35, 0, 0]
    assert "driver version is insufficient" in result[6]


def test_a_program_that_loads_the_library_at_run_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    program = compile_c("basic.c", tmp_path / "basic")
    subprocess.run([str(program), "libcudart.so.12", "2", "50", "exit"], env=bench.env, check=True)
    assert bench.processes()[0].calls["cudaLaunchKernel"] == 100


@measured  # the program may stand still while its kernel runs
def test_the_driver_interface_alone(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nd = ctypes.CDLL('libcuda.so.1'); P = ctypes.c_void_p\n"
        "ctx, mod, f, p = P(), P(), P(), P()\n"
        "r = [d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64)), d.cuInit(0),\n"
        "  d.cuCtxCreate_v2(ctypes.byref(ctx), 0, 0), d.cuModuleLoadData(ctypes.byref(mod), b'ptx'),\n"
        "  d.cuModuleGetFunction(ctypes.byref(f), mod, b'simgpu_k'),\n"
        "  d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64))]\n"
        "v = ctypes.c_uint64(300_000_000); a = (P * 1)(ctypes.addressof(v)); t = time.monotonic_ns()\n"
        "r.append(d.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, None, a, None))\n"
        "r += [d.cuStreamQuery(None), d.cuStreamSynchronize(None)]\n"
        "r.append(300 <= (time.monotonic_ns() - t) / 1e6 < 600)\n"
        "print(json.dumps([*r, d.cuStreamQuery(None)]))"
    )
    with figures():
        assert result == [3, 0, 0, 0, 0, 0, 0, 600, 0, True, 0]
    (log,) = bench.processes()
    with figures():
        assert log.kernel_busy_ns == 300_000_000
    assert not any(name.startswith("cuda") for name in log.calls)


@pytest.mark.parametrize(("library", "offset"), [("libcudart.so.12", 388), ("libcudart.so.13", 384)])
def test_properties_lie_where_the_version_puts_them(tmp_path: Path, library: str, offset: int) -> None:
    function = "GetDeviceProperties_v2" if library.endswith("12") else "GetDeviceProperties"
    result = Bench(tmp_path).run(
        "import ctypes, struct\nc = Cuda(); b = ctypes.create_string_buffer(1100)\n"
        f"assert c.{function}(b, 0) == 0\n"
        "cc = struct.unpack_from('<ii', b, 360)\n"
        f"print(json.dumps([b.value.decode(), *cc, *struct.unpack_from('<i', b, {offset})]))",
        TEST_CUDART=library,
    )
    assert result == ["SimGPU 80GB", 9, 0, 132]


@pytest.mark.parametrize(
    ("library", "function", "size"),
    [
        ("libcudart.so.12", "GetDeviceProperties", 728),
        ("libcudart.so.12", "GetDeviceProperties_v2", 1032),
        ("libcudart.so.13", "GetDeviceProperties", 1008),
    ],
)
def test_properties_end_where_their_structure_does(
    tmp_path: Path, library: str, function: str, size: int
) -> None:
    untouched = Bench(tmp_path).run(
        "import ctypes\nc = Cuda(); b = ctypes.create_string_buffer(b'\\xa5' * 1100, 1100)\n"
        f"assert c.{function}(b, 0) == 0; print(json.dumps(b.raw[{size}:] == b'\\xa5' * (1100 - {size})))",
        TEST_CUDART=library,
    )
    assert untouched is True


def test_devices_can_be_hidden(tmp_path: Path) -> None:
    body = (
        "import ctypes\nc = Cuda(); n = ctypes.c_int(); b = ctypes.create_string_buffer(32)\n"
        "e = c.GetDeviceCount(ctypes.byref(n)); c.DeviceGetPCIBusId(b, 32, 0)\n"
        "print(json.dumps([e, n.value, b.value.decode()]))"
    )
    bench = Bench(tmp_path)
    assert bench.run(body, SIMGPU_DEVICES="4") == [0, 4, "0000:10:00.0"]
    assert bench.run(body, SIMGPU_DEVICES="4", CUDA_VISIBLE_DEVICES="2,1") == [0, 2, "0000:12:00.0"]
    assert bench.run(body, CUDA_VISIBLE_DEVICES="")[:2] == [100, 0]
