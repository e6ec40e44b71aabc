"""Offsets of kernel structure members, read from the kernel's own type information (BTF).

Needs no kernel headers. The format is documented in the kernel's Documentation/bpf/btf.rst.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

VMLINUX = Path("/sys/kernel/btf/vmlinux")

_KIND_ARRAY, _KIND_STRUCT, _KIND_UNION, _KIND_ENUM = 3, 4, 5, 6
_KIND_FUNC_PROTO, _KIND_VAR, _KIND_DATASEC, _KIND_DECL_TAG, _KIND_ENUM64 = 13, 14, 15, 17, 19
_KIND_INT, _KIND_POINTER, _KIND_TYPEDEF = 1, 2, 8
_ARGUMENTS_OF = "btf_trace_"
_SWITCH, _OOM = f"{_ARGUMENTS_OF}sched_switch", f"{_ARGUMENTS_OF}mark_victim"
_OOM_ARGUMENTS = 3  # context, task, user; before Linux 6.9 context and thread id
_SWITCH_ARGUMENTS = 5  # context, preempt, prev, next, prev_state; the last one since Linux 5.18

# structure -> members whose offsets the BPF programs use
WANTED: dict[str, tuple[str, ...]] = {
    "task_struct": (
        "thread_info", "flags", "pid", "tgid", "comm", "nvcsw", "nivcsw", "min_flt",
        "maj_flt", "sched_info", "in_iowait", "exit_code", "signal", "__state",
    ),
    "sched_info": ("run_delay",),
    "signal_struct": ("live",),
}  # fmt: skip

# the same, where a kernel may lack them: some architectures, versions and configurations do
OPTIONAL: dict[str, tuple[str, ...]] = {
    "task_struct": ("se", "throttled", "thread", "cpu"),  # its CPU before Linux 5.16
    "thread_struct": ("fsbase",),  # x86-64
    "sched_entity": ("cfs_rq", "sum_exec_runtime"),
    "cfs_rq": ("rq", "throttled_clock_self", "throttled_clock_self_time"),
    "rq": ("cpu", "clock"),
    "thread_info": ("cpu", "preempt_count"),  # its CPU since Linux 5.16; the other one on arm64
    "pcpu_hot": ("preempt_count",),  # x86-64, Linux 6.2 to 6.14
}
_PER_CPU = ".data..percpu"

# what every thread of the machine passes by: where the types of their arguments are known, programs read the
# members of a task by plain loads
TYPED_TRACEPOINTS = (
    "sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task",
)  # fmt: skip

_TYPEDEFS = (_OOM, *(f"{_ARGUMENTS_OF}{name}" for name in TYPED_TRACEPOINTS))


class BtfError(Exception):
    """The kernel's type information is missing or lacks a member."""


def _extra_bytes(kind: int, count: int) -> int:
    """Bytes that follow the 12-byte header of a type of ``kind`` with ``count`` members."""
    if kind in (_KIND_STRUCT, _KIND_UNION, _KIND_ARRAY, _KIND_DATASEC, _KIND_ENUM64):
        return 12 * (1 if kind == _KIND_ARRAY else count)
    if kind in (_KIND_ENUM, _KIND_FUNC_PROTO):
        return 8 * count
    return 4 if kind in (_KIND_INT, _KIND_VAR, _KIND_DECL_TAG) else 0


class _Types:
    """The type section: where each type starts, and where those of some names are.

    None of its hundred thousand types is made a Python object: that would need ten megabytes, of which the
    system gets little back.
    """

    def __init__(self, blob: mmap.mmap, names: Iterable[str]) -> None:
        magic, _version, _flags, header = struct.unpack_from("<HBBI", blob)
        if magic != 0xEB9F:
            raise BtfError("the kernel's BTF has an unknown format")
        type_off, type_len, str_off, _str_len = struct.unpack_from("<IIII", blob, 8)
        self.blob = blob
        self.strings = header + str_off
        self.starts = array("I", [0])
        wanted = {self.place(name) for name in names}
        self.structs: dict[int, list[int]] = {}  # name offset -> positions
        self.typedefs: dict[int, int] = {}  # name offset -> its own number
        self.sections: list[int] = []  # positions
        position, end = header + type_off, header + type_off + type_len
        unpack = struct.Struct("<II").unpack_from
        while position < end:
            name, info = unpack(blob, position)
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            self.starts.append(position)
            if name in wanted:
                if kind == _KIND_STRUCT:
                    self.structs.setdefault(name, []).append(position)
                elif kind == _KIND_TYPEDEF:
                    self.typedefs[name] = len(self.starts) - 1
            if kind == _KIND_DATASEC:
                self.sections.append(position)
            position += 12 + _extra_bytes(kind, count)

    def place(self, name: str) -> int:
        """The offset of a name, which is there once; -1 when no type has it."""
        found = self.blob.find(f"\0{name}\0".encode(), self.strings)
        return found + 1 - self.strings if found >= 0 else -1

    def name(self, offset: int) -> str:
        start = self.strings + offset
        return self.blob[start : self.blob.find(b"\0", start)].decode()

    def members(self, position: int, base: int = 0) -> dict[str, int]:
        """Bit offsets of all members by name, those of anonymous structures included."""
        info = struct.unpack_from("<I", self.blob, position + 4)[0]
        found: dict[str, int] = {}
        for row in range(info & 0xFFFF):
            name, type_id, offset = struct.unpack_from("<III", self.blob, position + 12 + 12 * row)
            bits = base + (offset & 0xFFFFFF if info >> 31 else offset)
            if name:
                found[self.name(name)] = bits
            else:
                found |= self.members(self.starts[type_id], bits)
        return found

    def variables(self, section: str) -> dict[str, int]:
        """Byte offsets of the variables of a section by name."""
        found: dict[str, int] = {}
        for position in self.sections:
            name, info = struct.unpack_from("<II", self.blob, position)
            if self.name(name) != section:
                continue
            for row in range(info & 0xFFFF):
                type_id, offset = struct.unpack_from("<II", self.blob, position + 12 + 12 * row)
                found[self.name(struct.unpack_from("<I", self.blob, self.starts[type_id])[0])] = offset
        return found


@dataclass(frozen=True, slots=True)
class KernelLayout:
    """The facts about this kernel that the BPF programs need."""

    offsets: Mapping[str, int]  # bit offsets as ``{"task_struct.pid": 12345, …}``
    switch_has_state: bool  # the tracepoint sched_switch passes the state of the leaving task
    # byte offsets of variables that each CPU has for itself, in their common section
    per_cpu: Mapping[str, int] = field(default_factory=dict)
    oom_has_task: bool = False  # the tracepoint mark_victim passes the task, not its number
    # numbers of the types that describe the arguments of TYPED_TRACEPOINTS, as far as known
    tracepoints: Mapping[str, int] = field(default_factory=dict)


def read_layout(path: Path = VMLINUX, wanted: Mapping[str, tuple[str, ...]] = WANTED) -> KernelLayout:
    """Reads this kernel's layout in 0.1 to 0.2 s; ``kept_layout.py`` keeps it.

    Raises:
        BtfError: No BTF, or a structure or member is not in it.
    """
    try:
        types = _Types(_contents(path), {*wanted, *OPTIONAL, *_TYPEDEFS})
    except OSError as error:
        raise BtfError(
            f"the kernel's type information {path} cannot be read ({error.strerror}): "
            "live tracing needs a kernel built with CONFIG_DEBUG_INFO_BTF"
        ) from error
    except struct.error as error:  # a container may lay /dev/null over it
        raise BtfError(
            f"the kernel's type information {path} is empty: "
            "live tracing needs a kernel built with CONFIG_DEBUG_INFO_BTF that is not masked"
        ) from error
    return KernelLayout(
        _offsets(types, wanted),
        _arguments(types, _SWITCH) >= _SWITCH_ARGUMENTS,
        types.variables(_PER_CPU),
        _arguments(types, _OOM) >= _OOM_ARGUMENTS,
        {name: number for name in TYPED_TRACEPOINTS if (number := _typedef(types, _ARGUMENTS_OF + name))},
    )


def _contents(path: Path) -> mmap.mmap:
    """A file in memory that goes back to the system: malloc would keep as much, unused.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        room = mmap.mmap(-1, os.fstat(file.fileno()).st_size or 1)
        rest = memoryview(room)
        while rest and (got := file.readinto(rest)):
            rest = rest[got:]
        rest.release()
    return room


def _offsets(types: _Types, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    offsets: dict[str, int] = {}
    for structure in dict.fromkeys((*wanted, *OPTIONAL)):
        members = wanted.get(structure, ())
        layouts = [types.members(position) for position in types.structs.get(types.place(structure), [])]
        layout = max(layouts, key=len, default={})
        for member in members:
            if member not in layout:
                raise BtfError(f"the kernel's type information has no {structure}.{member}")
        members_wanted = (*members, *OPTIONAL.get(structure, ()))
        offsets |= {f"{structure}.{member}": layout[member] for member in members_wanted if member in layout}
    return offsets


def _typedef(types: _Types, name: str) -> int:
    """The number of a type that has a name of its own, 0 when the kernel has none."""
    return types.typedefs.get(types.place(name), 0)


def _arguments(types: _Types, tracepoint: str) -> int:
    """Arguments of a tracepoint's function, its context included; 0 when the kernel does not describe it."""
    number = _typedef(types, tracepoint)
    if not number:
        return 0
    pointer = types.starts[struct.unpack_from("<I", types.blob, types.starts[number] + 8)[0]]
    if not pointer:
        return 0
    kind, function = struct.unpack_from("<II", types.blob, pointer + 4)
    info = struct.unpack_from("<I", types.blob, types.starts[function] + 4)[0]
    is_function = kind >> 24 & 0x1F == _KIND_POINTER and info >> 24 & 0x1F == _KIND_FUNC_PROTO
    return info & 0xFFFF if is_function else 0
