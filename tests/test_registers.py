"""Arguments are found where each architecture's calling convention puts them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from probes import api
from probes.code import cookies
from probes.ebpf import loader
from probes.ebpf.build import btf, compiled, registers, structures

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="cc not found: apt-get install gcc")

ARGUMENTS_H = Path(loader.__file__).parent / "bpf" / "arguments.h"
READS_H = ARGUMENTS_H.with_name("reads.h")
TRAMPOLINES = {
    "x86_64": [0x7FFFFFFFE000],
    "aarch64": [0x7F_FFFF_F000, 0xFFFF_FFFF_F000, 0xF_FFFF_FFFF_F000],
}
CODE = {"x86_64": [0x401000, 0x7F12_3456_7890], "aarch64": [0x400000, 0xAAAA_AAAA_0000, 0xFFFF_F7E0_1000]}

HARNESS = """
#include <string.h>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
#include <stdbool.h>
#define __always_inline inline
#define bpf_probe_read_user(to, size, from) ((u64)(from) < 4096 ? -14 : (memcpy(to, from, size), 0))
#define SHAPE_SIZES 7
#include "ptrace.h"
#include "defines.h"
#include "arguments.h"

static struct registers registers_of(struct pt_regs *ctx)
{
	struct registers regs = {{REG_0, REG_1, REG_2, REG_3, REG_4, REG_5, REG_6, REG_7}, REG_SP};
	return regs;
}
u64 size_of(struct pt_regs *ctx, u64 cookie)
{
	struct registers regs = registers_of(ctx);
	return size_argument(&regs, cookie);
}
u64 kind_of(struct pt_regs *ctx, u64 cookie)
{
	struct registers regs = registers_of(ctx);
	return argument(&regs, cookie >> 26 & 7, cookie >> 29 & 7, cookie >> 32 & 31) & 7;
}
u64 stream_of(struct pt_regs *ctx, u64 cookie)
{
	struct registers regs = registers_of(ctx);
	return stream_argument(&regs, cookie);
}
u64 aux_of(struct pt_regs *ctx, u64 cookie)
{
	struct registers regs = registers_of(ctx);
	return aux_argument(&regs, cookie);
}
int shape_of(struct pt_regs *ctx, u64 cookie, u32 *sizes, u64 *stream)
{
	struct registers regs = registers_of(ctx);
	return launch_arguments(&regs, cookie, sizes, stream);
}
u64 return_address(struct pt_regs *ctx) { return RETURN_ADDRESS; }
u64 is_trampoline(u64 address) { return IS_TRAMPOLINE(address); }
u64 returned(struct pt_regs *ctx) { return REG_RETURN; }
u64 sp_at_entry(struct pt_regs *after) { struct pt_regs *ctx = after; return REG_SP - RETURN_POPS; }
"""


class Machine:
    """A simulated call: the words of ``struct pt_regs`` and a stack, filled by the written convention."""

    def __init__(self, name: str, library: ctypes.CDLL) -> None:
        self.name, self.library = name, library
        self.words = (ctypes.c_uint64 * 34)()
        self.stack = (ctypes.c_uint64 * 64)()
        self.sp = ctypes.addressof(self.stack) + 8 * 16

    def call(self, arguments: list[int], returns_to: int) -> None:
        """Puts arguments where a compiler would, as the psABI documents of both say."""
        if self.name == "x86_64":
            # x86-64 psABI 3.2.3; pt_regs in the order of the kernel's arch/x86/include/asm/ptrace.h
            places, spilled, sp_word = (14, 13, 12, 11, 9, 8), 17, 19
            self.stack[16] = returns_to
        else:
            # AAPCS64 6.8.2; pt_regs begins with x0 to x30 and sp
            places, spilled, sp_word = tuple(range(8)), 16, 31
            self.words[30] = returns_to
        self.words[sp_word] = self.sp
        for row, value in enumerate(arguments):
            if row < len(places):
                self.words[places[row]] = value
            else:
                self.stack[spilled + row - len(places)] = value

    def ask(self, function: str, *more: int) -> int:
        """One of the harness's functions on these registers."""
        return int(getattr(self.library, function)(self.words, *map(ctypes.c_uint64, more)))


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ctypes.CDLL]:
    """What the BPF programs decode with, compiled for this machine with another one's registers."""
    folder = tmp_path_factory.mktemp(request.param)
    shim = compiled.SHIM / "include" / "uapi" / "linux" / "ptrace.h"
    chosen = "#define __aarch64__ 1\n" if request.param == "aarch64" else "#undef __aarch64__\n"
    (folder / "ptrace.h").write_text(chosen + shim.read_text())
    (folder / "defines.h").write_text("\n".join(registers.defines(request.param)))
    (folder / "arguments.h").write_text(READS_H.read_text() + ARGUMENTS_H.read_text())
    (folder / "harness.c").write_text(HARNESS)
    output = folder / "harness.so"
    command = ["cc", "-O1", "-w", "-shared", "-fPIC", "-o", str(output), str(folder / "harness.c")]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(output))
    for function in (
        "size_of",
        "kind_of",
        "stream_of",
        "aux_of",
        "return_address",
        "returned",
        "sp_at_entry",
    ):
        getattr(loaded, function).restype = ctypes.c_uint64
    return request.param, loaded


@pytest.fixture
def machine(library: tuple[str, ctypes.CDLL]) -> Machine:
    return Machine(*library)


def cookie(name: str, major: int = 12) -> int:
    row = next(
        api.find(name, layer, major)
        for layer in ("runtime", "driver", "nccl")
        if api.find(name, layer, major)
    )
    assert row is not None
    return cookies.encode(row, name)


# the C prototype's arguments in order, structures by value as the words that they take
PITCH, WIDTH, HEIGHT, COUNT, STREAM, HANDLE, HOST = 512, 100, 7, 4096, 0x5EA4, 0xE4E4, 0x805700
CALLS = {
    # void *dst, const void *src, size_t, cudaMemcpyKind, cudaStream_t
    "cudaMemcpyAsync": ([1, HOST, COUNT, 2, STREAM], COUNT, 2, STREAM, HOST),
    # dst, dpitch, src, spitch, width, height, kind (7th), stream (8th)
    "cudaMemcpy2DAsync": ([1, PITCH, HOST, PITCH, WIDTH, HEIGHT, 1, STREAM], WIDTH * HEIGHT, 1, STREAM, HOST),
    # func, dim3 grid (two words), dim3 block (two words), args, sharedMem (7th word), stream (8th)
    "cudaLaunchKernel": ([HANDLE, 1, 1, 1, 1, 0, 48, STREAM], 0, 0, STREAM, HANDLE),
    # f, six dimensions, sharedMemBytes (8th), stream (9th), params, extra
    "cuLaunchKernel": ([HANDLE, 1, 2, 3, 4, 5, 6, 48, STREAM, 0, 0], 0, 0, STREAM, HANDLE),
    # send, receive, count, ncclFloat32 = 7, op, comm, stream (7th)
    "ncclAllReduce": ([1, 2, COUNT, 7, 0, HANDLE, STREAM], 4 * COUNT, 0, STREAM, HANDLE),
    # send, receive, count, ncclInt8 = 0, op, root, comm, stream (8th)
    "ncclReduce": ([1, 2, COUNT, 0, 0, 3, HANDLE, STREAM], COUNT, 0, STREAM, 0),
    "cuMemsetD32Async": ([1, 0xAB, COUNT, STREAM], 4 * COUNT, 0, STREAM, 0),
    "cudaEventRecord": ([HANDLE, STREAM], 0, 0, STREAM, HANDLE),
    # cudaStream_t *, unsigned: the upper half of its register holds anything; the handle comes later
    "cudaStreamCreateWithFlags": ([HOST, 7 << 32 | 1], 0, 0, HOST, 1),
    # void **, size_t: where the address will be
    "cudaMallocHost": ([HOST, COUNT], COUNT, 0, 0, HOST),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_are_read_where_the_calling_convention_puts_them(machine: Machine, name: str) -> None:
    arguments, size, kind, stream, aux = CALLS[name]
    machine.call(arguments, returns_to=0x1234)
    code = cookie(name)
    asked = [machine.ask(function, code) for function in ("size_of", "kind_of", "stream_of", "aux_of")]
    assert asked == [size, kind, stream, aux]


def test_members_of_a_structure_are_read_through_its_pointer(machine: Machine) -> None:
    parameters = (ctypes.c_uint64 * 20)()
    parameters[16:20] = [3, 5, 7, 2]  # extent at 128, kind at 152
    machine.call([ctypes.addressof(parameters), STREAM], returns_to=0)
    code = cookie("cudaMemcpy3DAsync")
    assert machine.ask("size_of", code) == 3 * 5 * 7
    assert machine.ask("kind_of", code) == 2
    assert machine.ask("stream_of", code) == STREAM


SHAPE = [3, 5, 7, 32, 4, 2, 0x12340]
GRID, BLOCK = [3 | 5 << 32, 0xDEAD << 32 | 7], [32 | 4 << 32, 0xBEEF << 32 | 2]  # each of two words
LAUNCHES = {
    # func, dim3 grid, dim3 block, args, sharedMem, stream
    "cudaLaunchKernel": [HANDLE, *GRID, *BLOCK, 0, 0x12340, STREAM],
    "cudaLaunchCooperativeKernel": [HANDLE, *GRID, *BLOCK, 0, 0x12340, STREAM],
    # f, grid x, y, z, block x, y, z, sharedMemBytes, stream, params: the upper halves hold anything
    "cuLaunchKernel": [HANDLE, *(0xABC << 32 | one for one in SHAPE), STREAM, 0, 0],
    "cuLaunchCooperativeKernel": [HANDLE, *(0xABC << 32 | one for one in SHAPE), STREAM, 0],
}


def shape(machine: Machine, name: str) -> list[int] | None:
    sizes = (ctypes.c_uint32 * 7)()
    machine.library.shape_of.restype = ctypes.c_int
    stream = ctypes.c_uint64()
    told = machine.library.shape_of(machine.words, ctypes.c_uint64(cookie(name)), sizes, ctypes.byref(stream))
    assert not told or stream.value == STREAM
    return [*sizes] if told else None


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_shape_of_a_launch_is_read_where_the_calling_convention_puts_it(
    machine: Machine, name: str
) -> None:
    machine.call(LAUNCHES[name], returns_to=0x1234)
    assert shape(machine, name) == SHAPE


@pytest.mark.parametrize("name", ["cudaLaunchKernelExC", "cuLaunchKernelEx"])
def test_the_shape_of_a_launch_is_read_from_its_configuration(machine: Machine, name: str) -> None:
    # gridDim, blockDim, dynamicSmemBytes (8 bytes) or sharedMemBytes (4), stream at 32
    config = (ctypes.c_uint32 * 16)(*SHAPE, 0 if name.startswith("cuda") else 0xFFFF, STREAM, 0)
    machine.call([ctypes.addressof(config), HANDLE, 0, 0], returns_to=0)
    assert shape(machine, name) == SHAPE
    machine.call([8, HANDLE, 0, 0], returns_to=0)
    assert shape(machine, name) is None


def test_more_shared_memory_than_any_launch_has_is_no_shape(machine: Machine) -> None:
    machine.call([HANDLE, *GRID, *BLOCK, 0, 1 << 32, STREAM], returns_to=0)
    assert shape(machine, "cudaLaunchKernel") is None


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "cuMemAlloc", "cudaLaunchHostFunc", "ncclAllReduce"])
def test_what_is_no_launch_of_a_kernel_has_no_shape(machine: Machine, name: str) -> None:
    machine.call([HANDLE, 1, 1, 1, 1, 1, 1, 1], returns_to=0)
    assert shape(machine, name) is None


def test_the_return_address_is_found_and_distinguished_from_the_kernels_trampoline(machine: Machine) -> None:
    machine.call([], returns_to=0xBEEF)
    assert machine.ask("return_address") == 0xBEEF
    trampoline = machine.library.is_trampoline
    assert all(trampoline(ctypes.c_uint64(address)) for address in TRAMPOLINES[machine.name])
    assert not any(trampoline(ctypes.c_uint64(address)) for address in CODE[machine.name])


def test_the_stack_pointer_at_entry_follows_from_the_one_after_the_return(machine: Machine) -> None:
    """A return takes the address off the stack on x86-64, and leaves the stack alone on arm64."""
    machine.call([], returns_to=0)
    sp_word, result_word = (19, 10) if machine.name == "x86_64" else (31, 0)
    machine.words[sp_word] = machine.sp + (8 if machine.name == "x86_64" else 0)
    machine.words[result_word] = 700
    assert machine.ask("sp_at_entry") == machine.sp
    assert machine.ask("returned") == 700


@pytest.mark.parametrize("name", registers.MACHINES)
def test_every_architecture_defines_all_that_the_programs_use(name: str) -> None:
    names = {line.split()[1] for line in registers.defines(name)}
    assert names == {line.split()[1] for line in registers.defines("x86_64")}


def test_an_architecture_without_a_table_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(
        loader.ProbeError, match="x86_64 and aarch64, this machine is riscv64; replay and stats"
    ):
        loader.source_text(loader.Options(True, 1 << 20, 1))


@pytest.mark.parametrize(
    ("release", "problem"),
    [
        ("4.18.0-553.el8.x86_64", True),
        ("5.14.0-427.el9.x86_64", True),
        ("5.15.0-generic", False),
        ("6.6", False),
        ("unknown", False),
    ],
)
def test_a_kernel_that_is_too_old_is_reported_in_one_sentence(release: str, problem: bool) -> None:
    sentence = f"Linux 5.15 or later is needed for live tracing, this is {release}"
    assert loader.kernel_problem(release) == (sentence if problem else "")


def btf_file(path: Path, arguments: int | None) -> Path:
    """A kernel's type information with one structure, and sched_switch with that many arguments."""
    strings = b"\0task\0flags\0btf_trace_sched_switch\0"

    def word(*values: int) -> bytes:
        return b"".join(value.to_bytes(4, "little") for value in values)

    types = word(1, 4 << 24 | 1, 8) + word(6, 0, 32)  # 1: struct task { flags at bit 32 }
    if arguments is not None:
        types += word(0, 13 << 24 | arguments, 0) + word(0, 1) * arguments  # 2: the function
        types += word(0, 2 << 24, 2)  # 3: a pointer to it
        types += word(12, 8 << 24, 3)  # 4: its name
    header = b"\x9f\xeb\x01\x00" + word(24, 0, len(types), len(types), len(strings))
    path.write_bytes(header + types + strings)
    return path


@pytest.mark.parametrize(("arguments", "tells"), [(4, False), (5, True), (None, False)])
def test_whether_a_switch_shows_the_state_is_read_from_the_kernels_types(
    tmp_path: Path, arguments: int | None, tells: bool
) -> None:
    layout = btf.read_layout(btf_file(tmp_path / "btf", arguments), {"task": ("flags",)})
    assert layout.switch_has_state is tells
    assert layout.offsets == {"task.flags": 32}
    assert layout.tracepoints == ({} if arguments is None else {"sched_switch": 4})
    assert loader.typed(layout, as_old=False) == {}, "one of them alone is not worth a way of its own"


def test_the_cpu_of_a_task_is_found_where_each_kernel_has_it() -> None:
    """Since Linux 5.16 in its thread_info, before in the task itself."""
    offsets = dict(btf.read_layout().offsets)
    for name in ("thread_info.cpu", "task_struct.cpu"):
        offsets.pop(name, None)
    told = {"task_struct.thread_info": 64, "thread_info.cpu": 96}
    newer = btf.KernelLayout(offsets | told, switch_has_state=True)
    older = btf.KernelLayout(offsets | {"task_struct.cpu": 512}, switch_has_state=False)
    assert structures.task(newer)["TASK_CPU"] == 160
    assert structures.task(older)["TASK_CPU"] == 512
    with pytest.raises(btf.BtfError, match=r"neither thread_info\.cpu nor task_struct\.cpu"):
        structures.task(btf.KernelLayout(offsets, switch_has_state=True))


def interrupt_macros(layout: btf.KernelLayout) -> set[str]:
    text = loader.source_text(loader.Options(True, 1 << 20, 1), layout)
    return {name for name in ("TASK_PREEMPT", "RUNQUEUE_TO_PREEMPT") if f"#define {name} " in text}


def test_where_interrupts_are_counted_follows_from_the_kernels_types() -> None:
    """arm64: in the task. x86-64: a per-CPU variable of its own, or a member of one (Linux 6.2 to 6.14)."""
    offsets = dict(btf.read_layout().offsets) | {"pcpu_hot.preempt_count": 64}
    path = ("task_struct.se", "sched_entity.cfs_rq", "cfs_rq.rq", "rq.cpu")
    offsets |= {step: offsets.get(step, 64) for step in path}
    offsets.pop("thread_info.preempt_count", None)
    arm = btf.KernelLayout(offsets | {"thread_info.preempt_count": 128}, switch_has_state=True)
    assert interrupt_macros(arm) == {"TASK_PREEMPT"}
    for variable in ("__preempt_count", "pcpu_hot"):
        told = btf.KernelLayout(offsets, switch_has_state=True, per_cpu={"runqueues": 4096, variable: 16})
        assert interrupt_macros(told) == {"RUNQUEUE_TO_PREEMPT"}
    assert (
        interrupt_macros(btf.KernelLayout(offsets, switch_has_state=True, per_cpu={"runqueues": 0})) == set()
    )
