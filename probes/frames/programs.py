"""The BPF programs that look for lines: a text of their own, since compiling it takes half a second."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes import bpfcall, btf, loader
from probes.frames import layout

TIMER_HZ = 49  # looks at each CPU: none in step with what happens a hundred times a second
SOURCES = ("base.h", "reads.h", "python.c", "native.c", "lines.c")
UPROBES = ("on_python", "on_code_free", "on_loader", "on_line")
MAPS = ("stacks", "interpreters", "pythons", "natives", "seen")
TRACEPOINTS = {
    "sched_process_fork": "on_python_fork",
    "sched_process_exec": "on_python_exec",
    "sched_process_exit": "on_python_exit",
}

MAX_CODES = 65536  # Python functions that are known at a time
STACK_BYTES = 8 << 20  # room for what is told of them between two marks


@dataclass(frozen=True, slots=True)
class LinePrograms:
    """Loaded programs and maps, by file descriptor; ``module`` keeps them alive."""

    module: Any
    uprobes: Mapping[str, int]
    tracepoints: Mapping[str, int]
    maps: Mapping[str, int]
    timer: int | None


def source_text(options: loader.Options, kernel: btf.Layout, maps: Mapping[str, int], *, as_old: bool) -> str:
    """The complete program text.

    Args:
        options: What the other programs were compiled for.
        kernel: This kernel's structures.
        maps: The other programs' maps, by file descriptor.
        as_old: As in ``loader.source_text``.

    Raises:
        loader.ProbeError: An architecture whose registers are not described.
    """
    defines = [
        *loader.defines(options, kernel, as_old=as_old),
        f"#define MAX_CODES {MAX_CODES}",
        f"#define STACK_PAGES {STACK_BYTES // os.sysconf('SC_PAGE_SIZE')}",
        *(
            f"#define {name.upper()}_FD {maps[name]}"
            for name in ("procs", "threads", "stopped")
            if name in maps
        ),
    ]
    return loader.text_of(SOURCES, defines, layout.c_header())


def load(programs: loader.Programs) -> LinePrograms:
    """Compiles and loads the programs beside the others; attaches nothing.

    Raises:
        loader.ProbeError: As ``loader.load``.
    """
    text = source_text(programs.options, btf.read_layout(), programs.maps, as_old=not programs.multi)
    compiled = loader.compile_text(text, UPROBES, TRACEPOINTS, MAPS, multi=programs.multi)
    return LinePrograms(*compiled, _timer(compiled[0]))


def _timer(module: Any) -> int | None:
    """The program of the timers; None where the kernel takes no such program that makes entries of maps."""
    try:
        program: int = module.load_func(b"on_timer", module.PERF_EVENT).fd
    except Exception:  # bcc raises plain Exception
        return None
    return program


def join(programs: loader.Programs, lines: LinePrograms) -> None:
    """From now on calls are looked at for their lines.

    Raises:
        OSError: The kernel refuses.
    """
    bpfcall.update(
        programs.maps["line_programs"], struct.pack("<I", 0), struct.pack("<I", lines.uprobes["on_line"])
    )
