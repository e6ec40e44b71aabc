"""The BPF programs that record lines: a text of their own, which older kernels verify for two seconds."""

from __future__ import annotations

import contextlib
import os
import platform
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probes.code import layout
from probes.ebpf import bpfcall, loader
from probes.ebpf.build import btf
from probes.ebpf.module import Module, outside

TIMER_HZ = 49  # samples of each CPU: not in step with events a hundred times a second
SOURCES = ("base.h", "reads.h", "sites.h", "python.c", "native.c", "lines.c", "kernels.c")
UPROBES = ("on_python", "on_code_free", "on_loader", "on_line", "on_naming", "on_named")
MAPS = ("stacks", "interpreters", "pythons", "natives", "seen")
OTHERS = (
    "procs",
    "threads",
    "stopped",
    "sites",
    "site_states",
)  # maps of the other programs, as far as they have them
TRACEPOINTS = {
    "sched_process_fork": "on_python_fork",
    "sched_process_exec": "on_python_exec",
    "sched_process_exit": "on_python_exit",
}

WITH_MAY_GOTO = 6, 9  # Linux
_SITE_STATES = 4096  # as in sites.h
MAX_CODES = 65536  # Python functions that are known at a time
STACK_BYTES = 8 << 20  # room for their records between two marks


@dataclass(frozen=True, slots=True)
class LinePrograms:
    """Loaded programs and maps, by file descriptor; ``module`` closes them.

    ``timer`` and ``leave`` are None where the kernel refuses such programs that add elements to maps.
    """

    module: Module
    uprobes: Mapping[str, int]
    tracepoints: Mapping[str, int]
    maps: Mapping[str, int]
    timer: int | None
    leave: int | None


def source_text(
    options: loader.Options, kernel: btf.KernelLayout, others: Sequence[str], *, as_old: bool, may_goto: bool
) -> str:
    """The complete program text.

    Raises:
        loader.ProbeError: An architecture whose registers are not described.
    """
    defines = [
        *loader.defines(options, kernel, as_old=as_old),
        f"#define MAX_CODES {MAX_CODES}",
        f"#define STACK_PAGES {STACK_BYTES // os.sysconf('SC_PAGE_SIZE')}",
        *(("#define MAY_GOTO",) if may_goto else ()),
        *(f"#define {name.upper()}_FD {outside(place)}" for place, name in enumerate(others)),
    ]
    return loader.text_of(SOURCES, defines, layout.c_header())


def load(programs: loader.Programs) -> LinePrograms:
    """Loads the programs beside the others; attaches nothing.

    Raises:
        loader.ProbeError: As ``loader.load``.
    """
    if programs.multi and loader.is_release(platform.release(), WITH_MAY_GOTO):
        with contextlib.suppress(loader.RefusedProbesError):  # a kernel's release need not tell its features
            return loaded(programs, may_goto=True)
    return loaded(programs, may_goto=False)


def loaded(programs: loader.Programs, *, may_goto: bool) -> LinePrograms:
    """As ``load``, with loops that the kernel may refuse."""
    others = [name for name in OTHERS if name in programs.maps]
    text = source_text(
        programs.options, programs.layout, others, as_old=not programs.multi, may_goto=may_goto
    )
    made = loader.load_text(
        text,
        UPROBES,
        TRACEPOINTS,
        MAPS,
        multi=programs.multi,
        sessions=("on_line",) if programs.sessions else (),
        numbers=(programs.options.own_pid,),
        others=[programs.maps[name] for name in others],
    )
    timer = leave = None
    with contextlib.suppress(bpfcall.RefusedError):  # where the kernel refuses it
        timer = made[0].load("on_timer", bpfcall.ProgramType.PERF_EVENT)
        # it makes entries of maps under the run queue's lock: only for kernels that let timers make some
        leave = loader.load_tracepoint(made[0], "on_leave", programs.typed.get("sched_switch", 0))
    return LinePrograms(*made, timer, leave)


def join(programs: loader.Programs, lines: LinePrograms) -> None:
    """Records lines of calls, and of threads that go to sleep, from now on.

    Raises:
        OSError: The kernel refuses.
    """
    for name, program in (("line_programs", lines.uprobes["on_line"]), ("leave_programs", lines.leave)):
        if program is not None:
            bpfcall.update(programs.maps[name], struct.pack("<I", 0), struct.pack("<I", program))


def forget_places(programs: loader.Programs, pid: int) -> None:
    """Drops the places of native calls of a process, which has an interpreter. Raises OSError."""
    slot = struct.pack("<I", pid & (_SITE_STATES - 1))
    bpfcall.update(programs.maps["site_states"], slot, struct.pack("<QQ", time.monotonic_ns(), pid))


def part(programs: loader.Programs) -> None:
    """From now on lines are not looked up; ``join`` undoes it. Raises OSError."""
    for name in ("line_programs", "leave_programs"):
        if name in programs.maps:
            with contextlib.suppress(FileNotFoundError):
                bpfcall.delete(programs.maps[name], struct.pack("<I", 0))
