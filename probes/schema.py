"""The one place where the event record's layout lives: C header and numpy dtype come from it.

Every event is one record of ``PAYLOAD_BYTES`` bytes in the BPF ring buffer, whatever its kind. Some
columns mean something else in other kinds; those names are aliases at the same offset (``ALIASES``).
All times are CLOCK_MONOTONIC nanoseconds; all pids and tids those of the initial pid namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np
import numpy.typing as npt

Records = npt.NDArray[np.void]

RING_HEADER_BYTES = 8
# a CALL record's values in place of a stack
NOT_REQUESTED, NO_PYTHON, NOT_READ, NO_ROOM = range(4)


class Kind(IntEnum):
    """The kind of a record."""

    CALL = 1  # one finished call of a traced function
    OFFCPU = 2  # one thread left its CPU and is back: exactly one context switch
    OCCUPANT = 3  # a thread ran on a CPU on which a watched thread was queued
    MIGRATE = 4  # a queued watched thread was moved to another CPU
    FORK = 5  # a watched process made a thread or a child (pid, tid: the new one)
    EXEC = 6  # a watched process replaced its program
    EXIT = 7  # a watched thread ended
    JOIN = 8  # a thread is watched from here on, its birth was not seen
    NAME = 9  # the name of a thread that other records mention
    COMMUNICATOR = 10  # a process joined a communicator of NCCL, or left it
    OOM = 11  # the kernel chose a watched process to end it, for lack of memory
    SHAPE = 12  # the meaning of a number of ``shape``, written once, at the first such launch


class CallFlag(IntFlag):
    """Bits of ``flags`` in CALL records; the copy direction lies above ``COPY_SHIFT``."""

    NESTED = 1  # made inside another traced call of the same thread
    ABANDONED = 2  # never returned (longjmp, exception, exit): duration up to the discovery
    COUNTERS = 4  # run_delay, nvcsw, nivcsw are filled
    WITHIN = 8  # a launch inside of another, with the beginning, end and code of that one


class Communicator(IntEnum):
    """``op`` of COMMUNICATOR records: ``aux`` is the communicator, ``bytes`` are how many ranks and which."""

    JOINED = 0  # ``stream`` is a hash of the unique id
    SPLIT = 1  # ``stream`` is the split one, ``bytes`` colour and key; ``aux`` 0: not in any part
    LEFT = 2
    ALL = 3  # all ranks are of one process; ``stream`` is a number that no other one has


class CallOut(IntEnum):
    """The result of a successful call where its first argument points."""

    NONE = 0
    STREAM = 1  # a handle, for the column ``stream``
    AUX = 2  # an address, for ``aux``


COPY_SHIFT = 8  # flags >> 8 is cudaMemcpyKind: 0 H2H, 1 H2D, 2 D2H, 3 D2D, 4 default


class OffFlag(IntFlag):
    """Bits of ``flags`` in OFFCPU records."""

    INVOLUNTARY = 1  # the kernel counted the switch in nivcsw
    IOWAIT = 2  # in_iowait was set when it left
    QUEUED = 4  # left runnable: it never blocked, all of it is run-queue wait unless THROTTLED
    MIGRATED = 8  # moved to another CPU while queued; see the MIGRATE records
    WAKER_IRQ = 16  # woken by an interrupt or a timer, whatever ran on that CPU
    BIRTH = 32  # the first time on a CPU of a new thread: no context switch of its own
    WAKE_MISSED = 64  # no wakeup was seen although it blocked: all of it counts as blocked
    THROTTLED = 128  # its control group had used up its CPU quota: not runnable until it got a new one
    WAKER_SOFTIRQ = 256  # woken from a softirq that ran on the waker's CPU: its doing, or chance
    RETURN_MISSED = 512  # its return was not seen: its end follows from the kernel's count of its CPU time


class ExitFlag(IntFlag):
    """Bits of ``flags`` in EXIT records."""

    GROUP_DEAD = 1  # the last thread of its process
    CALLED = 2  # this thread made a traced call


@dataclass(frozen=True, slots=True)
class Field:
    """One column of the record: C type, numpy type and meaning."""

    name: str
    c_type: str
    dtype: str
    meaning: str


FIELDS: tuple[Field, ...] = (
    Field("t_end", "u64", "<u8", "when it ended; for instants, when it happened"),
    Field("duration", "u64", "<u8", "nanoseconds before t_end; 0 for instants"),
    Field("pid", "u32", "<u4", "thread group id"),
    Field("tid", "u32", "<u4", "thread id"),
    Field("seq", "u32", "<u4", "per-CPU number of the record; counts lost ones too"),
    Field("cpu", "u16", "<u2", "CPU that wrote the record"),
    Field(
        "op",
        "u16",
        "<u2",
        "CALL: API row; OFFCPU: system call number, 65535 none; COMMUNICATOR: Communicator",
    ),
    Field("kind", "u8", "|u1", "Kind"),
    Field("depth", "u8", "|u1", "CALL: 0 is outermost"),
    Field("flags", "u16", "<u2", "CallFlag, OffFlag or ExitFlag"),
    Field("ret", "s32", "<i4", "CALL: return code; OFFCPU: task state at the switch; EXIT: exit code"),
    Field("bytes", "u64", "<u8", "CALL: bytes moved, set or allocated"),
    Field("stream", "u64", "<u8", "CALL: stream handle, 0 legacy default; what a creating call made"),
    Field("aux", "u64", "<u8", "CALL: event handle, host address or flags, by API row"),
    Field("run_delay", "u32", "<u4", "CALL: growth of sched_info.run_delay in ns, saturated, if COUNTERS"),
    Field("nvcsw", "u16", "<u2", "CALL: growth of nvcsw, saturated"),
    Field("nivcsw", "u16", "<u2", "CALL: growth of nivcsw, saturated"),
    Field(
        "stack",
        "u64",
        "<u8",
        "CALL: which Python stack made it, OFFCPU: which one blocked between two calls, "
        "or why that is unknown (frames/layout.py)",
    ),
)

# alias -> (field at whose offset it starts, bytes past it, numpy type)
ALIASES: dict[str, tuple[str, int, str]] = {
    "runnable": ("bytes", 0, "<u8"),  # OFFCPU: the part of duration spent in a run queue, its end
    "waker_pid": ("stream", 0, "<u4"),  # OFFCPU: 0 and WAKER_IRQ for interrupts
    "waker_tid": ("stream", 4, "<u4"),
    "next_pid": ("aux", 0, "<u4"),  # OFFCPU: the next thread on the CPU; FORK: the parent
    "next_tid": ("aux", 4, "<u4"),
    "shape": ("run_delay", 0, "<u4"),  # CALL of a launch, SHAPE: the number of its shape, 0 not known
    "argument": ("run_delay", 0, "<u4"),  # OFFCPU: lower half of the system call's first argument
    "queue_cpu": ("nvcsw", 0, "<u2"),  # OFFCPU: CPU where it was queued first; MIGRATE: the new CPU
    "faults": ("nivcsw", 0, "<u2"),  # OFFCPU: minor page faults while it ran before, saturated
    "minor": ("bytes", 0, "<u8"),  # EXIT: minor page faults of the thread's life, 0 in older recordings
    "major": ("stream", 0, "<u8"),  # EXIT: major ones
    "sizes": ("bytes", 0, f"({6},)<u4"),  # SHAPE: grid, block: x, y, z each
    "shared": ("ret", 0, "<u4"),  # SHAPE: bytes of dynamic shared memory
    "comm": ("bytes", 0, "S16"),  # NAME, JOIN, FORK, EXEC: the thread's name (bytes and stream)
}


def _sizes() -> dict[str, int]:
    return {field.name: np.dtype(field.dtype).itemsize for field in FIELDS}


def _offsets() -> dict[str, int]:
    offsets: dict[str, int] = {}
    position = 0
    for field in FIELDS:
        size = np.dtype(field.dtype).itemsize
        if position % size:
            raise AssertionError(f"field {field.name} is not naturally aligned")
        offsets[field.name] = position
        position += size
    return offsets


OFFSETS: dict[str, int] = _offsets()
PAYLOAD_BYTES: int = sum(_sizes().values())
STRIDE_BYTES: int = PAYLOAD_BYTES + RING_HEADER_BYTES

# The plain columns: no overlap, every byte of the payload once. Only these are stored.
RECORD: np.dtype[np.void] = np.dtype([(field.name, field.dtype) for field in FIELDS])

# The same bytes with the aliases as extra names; ``records.view(ALIASED)`` costs nothing.
ALIASED: np.dtype[np.void] = np.dtype(
    {
        "names": [field.name for field in FIELDS] + list(ALIASES),
        "formats": [field.dtype for field in FIELDS] + [alias[2] for alias in ALIASES.values()],
        "offsets": [OFFSETS[field.name] for field in FIELDS]
        + [OFFSETS[base] + extra for base, extra, _ in ALIASES.values()],
        "itemsize": PAYLOAD_BYTES,
    }
)

# A record without its columns, and one in the ring with its header in front: numpy copies such blobs
# with one memcpy each, where structures go column by column and tables word by word.
BLOB: np.dtype[np.void] = np.dtype(f"V{PAYLOAD_BYTES}")
IN_RING: np.dtype[np.void] = np.dtype(
    {
        "names": ["header", "record"],
        "formats": ["<u8", BLOB],
        "offsets": [0, RING_HEADER_BYTES],
        "itemsize": STRIDE_BYTES,
    }
)

STOPPED_STATES = 0x4 | 0x8  # of a task: stopped by a signal, traced by a debugger
NO_SYSCALL = 0xFFFF

# Where events can be lost, in the order of the kernel's loss counters.
LOSS_KINDS: tuple[str, ...] = (
    "calls",  # ring buffer full while a call ended
    "slices",  # ring buffer full while a thread came back to a CPU
    "others",  # ring buffer full for any other record
    "threads",  # no room in the thread table: everything of that thread is unknown
    "nesting",  # calls nested deeper than the probes keep
)


# -- state of the kernel side between events; read at each mark ---------------------------------------

MAX_DEPTH = 8  # open calls kept per thread; a power of two
SHAPE_SIZES = 7  # numbers that make a shape: grid, block, shared memory
MAX_SHAPES = 1 << 14  # that get a number; later ones are not known

CALL_STATE: tuple[Field, ...] = (
    Field("start", "u64", "<u8", "entry, ns"),
    Field("sp", "u64", "<u8", "stack pointer at entry: identifies the call"),
    Field("bytes", "u64", "<u8", "as in the record"),
    Field("stream", "u64", "<u8", "as in the record, or where the handle will be"),
    Field("aux", "u64", "<u8", "as in the record, or where the address will be"),
    Field("run_delay", "u64", "<u8", "the scheduler's counters at entry; of a launch its shape"),
    Field("nvcsw", "u64", "<u8", ""),
    Field("nivcsw", "u64", "<u8", ""),
    Field("stack", "u64", "<u8", "as in the record"),
    Field("op", "u16", "<u2", "API row"),
    Field("rank", "u8", "|u1", "layer: driver 0, runtime 1, NCCL 2"),
    Field("out", "u8", "|u1", "what is read at the return: CallOut"),
    Field("flags", "u16", "<u2", "copy direction"),
    Field("counted", "u8", "|u1", "whether the counters are read"),
    Field("launch", "u8", "|u1", "1: it launches a kernel; 2: and so does a call inside, not yet reported"),
)

THREAD_STATE: tuple[Field, ...] = (
    Field("pid", "u32", "<u4", ""),
    Field("tid", "u32", "<u4", ""),
    Field("depth", "u32", "<u4", "open calls"),
    Field("waker_pid", "u32", "<u4", ""),
    Field("waker_tid", "u32", "<u4", ""),
    Field("next_pid", "u32", "<u4", "who took its CPU"),
    Field("next_tid", "u32", "<u4", ""),
    Field("argument", "u32", "<u4", "as in the record"),
    Field("state", "s32", "<i4", "task state at the switch"),
    Field("off_flags", "u16", "<u2", "OffFlag"),
    Field("syscall", "u16", "<u2", "NO_SYSCALL outside of one"),
    Field("first_queue_cpu", "u16", "<u2", "CPU in whose run queue it was put first"),
    Field("called", "u16", "<u2", "made a traced call"),
    Field("queue_cpu", "u16", "<u2", "CPU in whose run queue it is"),
    Field("waker_flags", "u16", "<u2", "OffFlag, written by who wakes it"),
    Field("min_flt", "u32", "<u4", "the kernel's count of minor faults at the last switch, lower half"),
    Field("faults", "u32", "<u4", "minor faults between the last two switches"),
    Field("off_since", "u64", "<u8", "left its CPU; 0 while it runs"),
    Field("off_stack", "u64", "<u8", "as in the record"),
    Field("queued_since", "u64", "<u8", "0 while it is in no run queue"),
    Field("nivcsw", "u64", "<u8", "the kernel's count at the last switch"),
    Field("group", "u64", "<u8", "THROTTLED: its group's run queue on that CPU"),
    Field("group_time", "u64", "<u8", "THROTTLED: when it is let go, less what the group was throttled"),
    Field("ran", "u64", "<u8", "the kernel's count of its CPU time when it left its CPU"),
)

CPU_STATE: tuple[Field, ...] = (
    Field("since", "u64", "<u8", "the running thread got this CPU"),
    Field("queued", "s64", "<i8", "watched threads that wait for it"),
    Field("seq", "u32", "<u4", "records begun here, lost ones too"),
    Field("force", "u32", "<u4", "a watched thread waited here and was moved away in this on-CPU slice"),
    Field("preempt", "u64", "<u8", "address of its preemption count, 0 until it was looked for"),
)

CALL_STATE_DTYPE: np.dtype[np.void] = np.dtype([(field.name, field.dtype) for field in CALL_STATE])
THREAD_STATE_DTYPE: np.dtype[np.void] = np.dtype(
    [(field.name, field.dtype) for field in THREAD_STATE] + [("calls", CALL_STATE_DTYPE, (MAX_DEPTH,))]
)
CPU_STATE_DTYPE: np.dtype[np.void] = np.dtype(
    [(field.name, field.dtype) for field in CPU_STATE] + [("lost", "<u8", (len(LOSS_KINDS),))]
)


def c_struct(name: str, fields: tuple[Field, ...], *more: str) -> list[str]:
    """The lines of a C structure; ``more`` are members behind the fields."""
    members = [f"\t{field.c_type} {field.name};" for field in fields]
    return [f"struct {name} {{", *members, *(f"\t{line}" for line in more), "};"]


def c_header() -> str:
    """The C declarations of record and states, kinds and flags, for the BPF programs."""
    lines = [f"#define KIND_{kind.name} {int(kind)}" for kind in Kind]
    for prefix, flags in (("CALL", CallFlag), ("OFF", OffFlag), ("EXIT", ExitFlag)):
        lines += [f"#define {prefix}_{flag.name} {int(flag)}" for flag in flags]
    lines += [f"#define OUT_{out.name} {int(out)}" for out in CallOut]
    lines += [f"#define COMMUNICATOR_{what.name} {int(what)}" for what in Communicator]
    lines += [f"#define COPY_SHIFT {COPY_SHIFT}", f"#define NO_SYSCALL {NO_SYSCALL}"]
    lines += [f"#define LOST_{name.upper()} {row}" for row, name in enumerate(LOSS_KINDS)]
    lines += [f"#define LOSS_KINDS {len(LOSS_KINDS)}", f"#define MAX_DEPTH {MAX_DEPTH}"]
    lines += [f"#define SHAPE_SIZES {SHAPE_SIZES}", f"#define MAX_SHAPES {MAX_SHAPES}"]
    lines += c_struct("record", FIELDS)
    lines += c_struct("call", CALL_STATE)
    lines += c_struct("thread", THREAD_STATE, "struct call calls[MAX_DEPTH];")
    lines += c_struct("cpu", CPU_STATE, "u64 lost[LOSS_KINDS];")
    return "\n".join(lines) + "\n"


def empty(count: int = 0) -> Records:
    return np.zeros(count, dtype=RECORD)


def select(records: Records, mask: npt.NDArray[np.bool_]) -> Records:
    """The records where ``mask`` holds; much faster than ``records[mask]`` on structures."""
    chosen: Records = records.view(BLOB).take(np.flatnonzero(mask)).view(RECORD)
    return chosen


def join(batches: list[Records]) -> Records:
    """The records of several batches, at least one, in their order."""
    return np.concatenate([batch.view(BLOB) for batch in batches]).view(RECORD)
