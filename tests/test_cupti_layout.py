"""CUPTI's records: places as in its header, where ``GPUTOP_CUPTI_INCLUDE`` names one; the simulated one."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest

from gputop.simgpu import ensure_built
from tests.simgpu_programs.harness import Bench

# of each structure the fields that are read, by their places: the parts that all versions have
_MOVED = {"bytes": 8, "start": 16, "end": 24, "deviceId": 32, "streamId": 40, "correlationId": 44}
_MOVED |= {"graphNodeId": 64, "graphId": 72}
_KERNEL = {"start": 16, "end": 24, "deviceId": 40, "streamId": 48, "gridX": 52, "blockX": 64, "name": 104}
_KERNEL |= {"dynamicSharedMemory": 80, "correlationId": 92, "graphNodeId": 144, "graphId": 156}
_GRAPH = {"correlationId": 4, "start": 8, "end": 16, "deviceId": 24, "graphId": 28, "streamId": 36}
PLACES = {
    "CUpti_ActivityKernel8": _KERNEL,
    "CUpti_ActivityMemcpy5": {"copyKind": 4, "srcKind": 5, "dstKind": 6, **_MOVED},
    "CUpti_ActivityMemset4": _MOVED,
    "CUpti_ActivityGraphTrace": _GRAPH,
    "CUpti_ActivityAPI": {"start": 8, "end": 16, "threadId": 28, "correlationId": 32},
    "CUpti_ActivityOverhead": {"overheadKind": 4, "start": 24, "end": 32},
}


def test_places_are_those_of_the_header(tmp_path: Path) -> None:
    folder = os.environ.get("GPUTOP_CUPTI_INCLUDE", "")
    if not folder:
        pytest.skip("GPUTOP_CUPTI_INCLUDE names no folder with cupti_activity.h and cuda.h")
    wanted = [(name, field) for name, fields in PLACES.items() for field in fields]
    lines = ["#include <cuda.h>", "#include <cupti_activity.h>", "#include <stddef.h>", "#include <stdio.h>"]
    lines += ["int main(void) {"]
    lines += [f'printf("%zu\\n", offsetof({name}, {field}));' for name, field in wanted]
    source, program = tmp_path / "places.c", tmp_path / "places"
    source.write_text("\n".join([*lines, "}"]))
    (tmp_path / "builtin_types.h").write_text("")  # of the toolkit: nothing of it is needed
    includes = [f"-I{one}" for one in (tmp_path, *folder.split(":"))]
    subprocess.run(["cc", "-w", *includes, "-o", str(program), str(source)], check=True)
    found = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    assert [int(one) for one in found] == [PLACES[name][field] for name, field in wanted]


_CLIENT = """
import ctypes, json, struct
u = ctypes.CDLL('libcupti.so.%s')
got, buffers = [], []
size_t, void_p = ctypes.c_size_t, ctypes.c_void_p
REQUEST = ctypes.CFUNCTYPE(None, *map(ctypes.POINTER, (void_p, size_t, size_t)))
DONE = ctypes.CFUNCTYPE(None, void_p, ctypes.c_uint32, void_p, size_t, size_t)
def request(buffer, size, most):
    made = ctypes.create_string_buffer(SIZE); buffers.append(made)
    buffer[0] = ctypes.addressof(made); size[0] = SIZE; most[0] = 0
def done(context, stream, buffer, size, valid):
    at = ctypes.c_void_p()
    while u.cuptiActivityGetNextRecord(void_p(buffer), size_t(valid), ctypes.byref(at)) == 0:
        data = ctypes.string_at(at.value, 112)
        kind, = struct.unpack_from('<I', data)
        if kind == 10:
            begin, end = struct.unpack_from('<QQ', data, 16)
            name = ctypes.string_at(struct.unpack_from('<Q', data, 104)[0]).decode()
            got.append(['kernel', end - begin, name, struct.unpack_from('<I', data, 92)[0]])
        elif kind == 1:
            number, = struct.unpack_from('<I', data, 44)
            got.append(['copy', struct.unpack_from('<Q', data, 8)[0], data[4], number])
        elif kind == 4:
            got.append(['call', 0, 0, struct.unpack_from('<I', data, 32)[0]])
request, done = REQUEST(request), DONE(done)
SIZE = 1000
assert u.cuptiActivityRegisterCallbacks(request, done) == 0
for kind in (10, 1, 4): assert u.cuptiActivityEnable(kind) == 0
c = Cuda(); p, h = c.malloc(4096), c.pinned(4096)
for n in range(20): c.launch(100_000 + n)
c.DeviceSynchronize(); c.copy(p, h, 4096, H2D)
time.sleep(0.05)
assert u.cuptiActivityFlushAll(0) == 0
n = ctypes.c_size_t(9); u.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(n))
version = ctypes.c_uint32(); u.cuptiGetVersion(ctypes.byref(version))
print(json.dumps([version.value, n.value, got, len(buffers)]))
"""


@pytest.mark.parametrize(
    ("library", "asked", "number"), [("11.8", "", 18), ("12", "", 26), ("12", "12.1", 18), ("13", "", 130500)]
)
def test_the_simulated_cupti_gives_each_record_once_by_buffers_that_are_too_small(
    tmp_path: Path, library: str, asked: str, number: int
) -> None:
    version, dropped, got, buffers = Bench(tmp_path).run(_CLIENT % library, SIMGPU_CUPTI=asked)
    assert (version, dropped) == (number, 0)
    assert buffers > 3
    kernels = [row for row in got if row[0] == "kernel"]
    assert sorted(row[1] for row in kernels) == [100_000 + one for one in range(20)]
    assert [row[1] for row in kernels] != sorted(row[1] for row in kernels)  # some come too early
    assert [row[:3] for row in got if row[0] == "copy"] == [["copy", 4096, 1]]
    calls = [row[3] for row in got if row[0] == "call"]
    assert sorted(calls) == sorted(row[3] for row in got if row[0] != "call")


def test_what_it_has_no_room_for_is_counted(tmp_path: Path) -> None:
    _version, dropped, got, _buffers = Bench(tmp_path).run(
        _CLIENT.replace("range(20)", "range(2000)").replace("100_000 +", "1000 +") % "13",
        SIMGPU_CUPTI_MOST="1024",
        SIMGPU_CUPTI_LATE_MS="5000",
    )
    assert dropped > 0
    assert len(got) + dropped == 2 * 2001


def test_the_driver_loads_what_the_environment_names(tmp_path: Path) -> None:
    source, library, mark = tmp_path / "one.c", tmp_path / "one.so", tmp_path / "mark"
    source.write_text(
        "#include <stdio.h>\n"
        "int InitializeInjection(void) {\n"
        f'  FILE *f = fopen("{mark}", "a"); fputs("x", f); return fclose(f);\n}}\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    bench = Bench(tmp_path)
    body = "c = Cuda(); a = c.Free(None); b = c.Free(None); print(json.dumps([a, b]))"
    assert bench.run(body) == [0, 0]
    assert not mark.exists()
    assert bench.run(body, CUDA_INJECTION64_PATH=str(library)) == [0, 0]
    assert mark.read_text() == "x"
    assert bench.run(body, CUDA_INJECTION64_PATH=str(tmp_path / "none.so")) == [0, 0]


def test_a_second_subscriber_is_refused() -> None:
    cupti = ctypes.CDLL(str(ensure_built() / "libcupti.so.13"))
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    assert cupti.cuptiSubscribe(ctypes.byref(first), None, None) == 0
    assert cupti.cuptiSubscribe(ctypes.byref(second), None, None) == 39
    assert cupti.cuptiUnsubscribe(first) == 0
    text = ctypes.c_char_p()
    cupti.cuptiGetResultString(39, ctypes.byref(text))
    assert re.search(b"MULTIPLE_SUBSCRIBERS", text.value or b"")
