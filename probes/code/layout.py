"""How CPython's structures lie in memory, by version, and the offsets that the BPF programs get.

The offsets were compiled from each version's own headers (x86-64). CPython keeps them within a minor
version; the kernel's walk checks it all the same: a thread's state must name the thread, a code object must
have the type of code objects. Where that fails, the line is unknown.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from probes.schema import NO_PYTHON, NO_ROOM, NOT_READ, Field, c_struct

MAX_INTERPRETERS = 512
MAX_FRAMES = 64  # kept of a stack, the innermost ones
WINDOW = 4096  # bytes of the program's memory that are copied at once
FILE_BYTES, NAME_BYTES, OBJECT_BYTES, TABLE_BYTES = 512, 256, 256, 6144
TABLE_PARTS = 32  # of a table of lines: ten thousand lines of one function, about
STACK_RECORD, CODE_RECORD, LINE_RECORD, FORK_RECORD, HANDLE_RECORD = 1, 2, 3, 4, 5
MAX_NATIVES = 17  # addresses of native code: where the thread is, or its caller, and 16 callers of that
SAMPLED = 1 << 63  # this bit of a stack's serial marks a timer's sample
NO_FRAME = 0xFFFFFFFF

FIRST_STACK = 1 << 62  # identifiers of stacks have this bit

# glibc keeps thread-specific values in blocks of 32, 16 bytes each, the value behind a sequence number. The
# first block lies within what belongs to the thread itself. Pointers to all blocks follow it, at 1296: it is
# the offset of _thread_db_pthread_specific
TLS_SLOTS = 0x310 + 8
TLS_KEYS = 32
TLS_BLOCKS = 0x510
TLS_MOST_KEYS = 1024
# Variables of threads are in blocks, one a module. Those of modules loaded at the start lie together before
# the FS base, others anywhere. The word behind the FS base points to a table of the blocks, 16 bytes a module
TLS_MODULES = 8
TLS_MODULE_BYTES = 16
TLS_MOST_MODULES = 1 << 16
TLS_STATIC = 1 << 16  # more than the former ever take together


def slot_of(key: int) -> tuple[int, int]:
    """Where a thread keeps the value of a key: ``slot`` and ``inner`` of ``PROCESS``."""
    inner = 8 + 16 * (key % TLS_KEYS)
    return (TLS_SLOTS - 8 + inner, 0) if key < TLS_KEYS else (TLS_BLOCKS + 8 * (key // TLS_KEYS), inner)


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes; ``cframe`` is NO_FRAME where the thread's state points to its frame itself."""

    key: int  # runtime -> autoTSSkey, the key's number; NO_FRAME: its state is in a variable of the thread
    interpreters: int  # runtime -> interpreters.head
    threads: int  # interpreter -> threads.head
    thread_id: int
    frame: int
    cframe: int
    code: int
    previous: int
    instruction: int
    owner: int  # NO_FRAME before 3.11
    heap: int  # frames are objects of their own, and the instruction is a number of units
    first_line: int
    filename: int
    name: int
    table: int
    first_instruction: int  # code -> bytecode; 0 where instructions are offsets already
    first_traceable: int  # NO_FRAME before 3.11
    ascii: int  # string -> characters, when all are ASCII
    compact: int  # the same otherwise
    next_interpreter: int = 0  # interpreter -> next
    first_only: int = 0  # 1: a thread's slot keeps its first state, whatever interpreter the thread enters
    head: int = 0  # of objects, so many bytes more: without the GIL counts of references are two
    kind: int = 2  # string -> state -> this bit and the two above: bytes a character
    copy: int = NO_FRAME  # frame -> which thread's copy of the bytecode; NO_FRAME: there is one for all
    copies: int = 0  # code -> array of copies


def _heap(key: int, instruction: int) -> Layout:
    return Layout(
        key=key, interpreters=32, threads=8, thread_id=176, frame=24, cframe=NO_FRAME, code=32, previous=24,
        instruction=instruction, owner=NO_FRAME, heap=1, first_line=40, filename=104, name=112, table=120,
        first_instruction=0, first_traceable=NO_FRAME, ascii=48, compact=72, first_only=1,
    )  # fmt: skip


LAYOUTS: dict[int, Layout] = {
    10: _heap(key=588, instruction=96),
    11: Layout(
        key=596, interpreters=40, threads=16, thread_id=152, frame=56, cframe=8, code=32, previous=48,
        instruction=56, owner=69, heap=0, first_line=72, filename=112, name=128, table=136,
        first_instruction=184, first_traceable=168, ascii=48, compact=72, first_only=1,
    ),
    12: Layout(
        key=1548, interpreters=40, threads=72, thread_id=136, frame=56, cframe=0, code=0, previous=8,
        instruction=56, owner=70, heap=0, first_line=68, filename=112, name=128, table=136,
        first_instruction=192, first_traceable=176, ascii=40, compact=56,
    ),
    13: Layout(
        key=2164, interpreters=632, threads=7344, thread_id=152, frame=72, cframe=NO_FRAME, code=0,
        previous=8, instruction=56, owner=70, heap=0, first_line=68, filename=112, name=128, table=136,
        first_instruction=200, first_traceable=184, ascii=40, compact=56, next_interpreter=7264,
    ),
    14: Layout(
        key=2340, interpreters=808, threads=7344, thread_id=152, frame=72, cframe=NO_FRAME, code=0,
        previous=8, instruction=56, owner=74, heap=0, first_line=68, filename=112, name=128, table=136,
        first_instruction=208, first_traceable=192, ascii=40, compact=56, next_interpreter=7272,
    ),
    15: Layout(
        key=NO_FRAME, interpreters=936, threads=7336, thread_id=176, frame=72, cframe=NO_FRAME, code=0,
        previous=8, instruction=56, owner=74, heap=0, first_line=68, filename=112, name=128, table=136,
        first_instruction=208, first_traceable=192, ascii=40, compact=56, next_interpreter=7264,
    ),
}  # fmt: skip


_WITHOUT_GIL = {13: {"kind": 2}, 14: {"kind": 8}}  # whose lines were tried without it
_HEAD = 16
_COPY, _COPIES = 38, 49  # in 3.14's own offsets, as in OWN_OFFSETS


def _own(thread_state: int, thread_id: int, frame: int, code: int) -> dict[str, int]:
    """Where an interpreter keeps its own offsets, in numbers of eight bytes from _PyRuntime on.

    Args:
        thread_state: That of the executed frame in a thread's state.
        thread_id: That of the thread's number.
        frame, code: The first one of frames and of code objects.
    """
    return {
        "interpreters": 5, "next_interpreter": 8, "threads": 9, "frame": thread_state, "thread_id": thread_id,
        "previous": frame + 1, "code": frame + 2, "instruction": frame + 3, "owner": frame + 5,
        "filename": code + 1, "name": code + 3, "table": code + 4, "first_line": code + 5,
        "first_instruction": code + 9,
    }  # fmt: skip


OWN_OFFSETS = {13: _own(23, 24, 28, 34), 14: _own(26, 27, 31, 39), 15: _own(26, 30, 39, 47)}
OWN_BYTES = 8 + 8 * max(max(places.values()) for places in OWN_OFFSETS.values())
_FREE_THREADED = 2


def free_threaded(runtime: bytes) -> bool:
    """True if an interpreter reports that it has no GIL."""
    return bool(np.frombuffer(runtime, "<u8", _FREE_THREADED + 1)[_FREE_THREADED])


def own_layout(runtime: bytes, minor: int) -> Layout | None:
    """The layout with the offsets of the interpreter's own file, from its first OWN_BYTES.

    None for a version that was not tried without the GIL.
    """
    numbers = np.frombuffer(runtime, "<u8", OWN_BYTES // 8)
    offsets = {name: int(numbers[place]) for name, place in OWN_OFFSETS[minor].items()}
    layout = replace(LAYOUTS[minor], **offsets)
    if not free_threaded(runtime):
        return layout
    if minor not in _WITHOUT_GIL:
        return None
    longer = {name: getattr(layout, name) + _HEAD for name in ("first_traceable", "ascii", "compact")}
    if minor >= 14:  # each thread has a copy of the bytecode of its own
        longer |= {"copy": int(numbers[_COPY]), "copies": int(numbers[_COPIES])}
    return replace(layout, head=_HEAD, **longer, **_WITHOUT_GIL[minor])


def fits(layout: Layout) -> bool:
    """True if the kernel's copies of frames, states and code objects reach as far as these offsets."""
    within = (
        (80, layout.code, layout.previous, layout.instruction, 0 if layout.copy == NO_FRAME else layout.copy),
        (128, layout.frame),
        (192, layout.thread_id),
        (208, layout.first_line, layout.filename, layout.name, layout.table),
    )
    reached = all(offset + 8 <= room for room, *offsets in within for offset in offsets)
    # as wide as the kernel has
    return reached and all(offset <= NO_FRAME for offset in asdict(layout).values())


INTERPRETER: tuple[Field, ...] = (
    Field("runtime", "u64", "<u8", "address of _PyRuntime in the file"),
    Field("code_type", "u64", "<u8", "of PyCode_Type"),
    Field("run_main", "u64", "<u8", "of the probe in Py_RunMain"),
    Field("code_free", "u64", "<u8", "of the probe in what frees code objects"),
    Field("state_module", "u64", "<u8", "of the word with the number of the module of the thread's variable"),
    Field("state_offset", "u64", "<u8", "of the variable, as in thread_variable.py"),
    *(Field(field.name, "u32", "<u4", "as in Layout") for field in fields(Layout)),
    Field("unused", "u32", "<u4", "fills up to eight bytes"),
)
PROCESS: tuple[Field, ...] = (
    Field("serial", "u64", "<u8", "distinguishes processes and programs with one number"),
    Field("slot", "u64", "<u8", "where a thread keeps its state, from its FS base on, modulo 2^64"),
    Field("code_type", "u64", "<u8", "address of PyCode_Type"),
    Field("row", "u32", "<u4", "of its interpreter"),
    Field("inner", "u32", "<u4", "if not 0: the slot points to a block, this is the place in it"),
    Field("module", "u32", "<u4", "if not 0: the slot points to a table of blocks, this is which one"),
    Field("unused", "u32", "<u4", "fills up to eight bytes"),
)
FRAME: tuple[Field, ...] = (
    Field("code", "u64", "<u8", "address of the code object"),
    Field("instruction", "u64", "<u8", "address, or number of its unit"),
    Field("generation", "u64", "<u8", "which code object of those that had this address"),
)
STACK: tuple[Field, ...] = (
    Field("kind", "u32", "<u4", "STACK_RECORD"),
    Field("pid", "u32", "<u4", ""),
    Field("serial", "u64", "<u8", "of the process"),
    Field("id", "u64", "<u8", "as in CALL records"),
    Field("count", "u32", "<u4", "frames that follow, innermost first"),
    Field("row", "u32", "<u4", "of the interpreter; NO_FRAME where none is known in this process"),
    Field("time", "u64", "<u8", "CLOCK_MONOTONIC, ns"),
    Field("generation", "u32", "<u4", "as in NATIVE"),
    Field("native_count", "u32", "<u4", "addresses of native code that are valid"),
    Field("native_serial", "u64", "<u8", "as in NATIVE"),
)
NATIVE: tuple[Field, ...] = (
    Field("serial", "u64", "<u8", "distinguishes processes and programs with one number"),
    Field("generation", "u64", "<u8", "how often its loader has mapped or unmapped a library since"),
)
FORK: tuple[Field, ...] = (
    Field("kind", "u32", "<u4", "FORK_RECORD"),
    Field("pid", "u32", "<u4", "the child"),
    Field("parent", "u32", "<u4", ""),
    Field("unused", "u32", "<u4", "fills up to eight bytes"),
    Field("time", "u64", "<u8", "CLOCK_MONOTONIC, ns"),
)
CODE: tuple[Field, ...] = (
    Field("kind", "u32", "<u4", "CODE_RECORD"),
    Field("pid", "u32", "<u4", ""),
    Field("serial", "u64", "<u8", "of the process"),
    Field("code", "u64", "<u8", "its address"),
    Field("generation", "u64", "<u8", "as in the frame"),
    Field("row", "u32", "<u4", "of the interpreter"),
    Field("table_bytes", "u32", "<u4", "of the whole table of lines"),
    Field("table_at", "u32", "<u4", "where the part begins that this record has"),
    Field("part", "u32", "<u4", "bytes of it"),
    Field("file_length", "u32", "<u4", "characters"),
    Field("file_state", "u32", "<u4", "of the string object"),
    Field("name_length", "u32", "<u4", ""),
    Field("name_state", "u32", "<u4", ""),
)


LINE: tuple[Field, ...] = (
    Field("kind", "u32", "<u4", "LINE_RECORD"),
    Field("pid", "u32", "<u4", ""),
    Field("tid", "u32", "<u4", ""),
    Field("syscall", "u32", "<u4", "the system call that it was in, NO_SYSCALL outside of one"),
    Field("time", "u64", "<u8", "CLOCK_MONOTONIC, ns"),
    Field("stack", "u64", "<u8", "where the thread was between two calls"),
    Field("argument", "u64", "<u8", "the first argument of that system call"),
)


HANDLE: tuple[Field, ...] = (
    Field("kind", "u32", "<u4", "HANDLE_RECORD"),
    Field("pid", "u32", "<u4", ""),
    Field("time", "u64", "<u8", "CLOCK_MONOTONIC, ns"),
    Field("handle", "u64", "<u8", "of a kernel"),
    Field("other", "u64", "<u8", "another handle of the same kernel; 0: the name follows"),
    Field("caller", "u64", "<u8", "the address to which the call returned"),
)
HANDLE_NAME_BYTES = 2008  # mangled names of templates are long; what is longer is cut
# what a function of the driver does
HANDLE_NAMED = 1  # leaves a handle at its first argument, of the kernel that its third one names
HANDLE_SAME = 2  # leaves another handle of the kernel that its second argument is
HANDLE_QUERIED = 3  # leaves the address of the name of the kernel that its second argument is


def _dtype(rows: tuple[Field, ...], *more: tuple[Any, ...]) -> np.dtype[np.void]:
    return np.dtype([*((field.name, field.dtype) for field in rows), *more])


INTERPRETER_DTYPE = _dtype(INTERPRETER)
PROCESS_DTYPE = _dtype(PROCESS)
FRAME_DTYPE = _dtype(FRAME)
STACK_DTYPE = _dtype(STACK, ("natives", "<u8", (MAX_NATIVES,)))
NATIVE_DTYPE = _dtype(NATIVE)
FORK_DTYPE = _dtype(FORK)
LINE_DTYPE = _dtype(LINE)
HANDLE_DTYPE = _dtype(HANDLE, ("name", f"V{HANDLE_NAME_BYTES}"))
CODE_DTYPE = _dtype(
    CODE, ("file", f"V{FILE_BYTES}"), ("name", f"V{NAME_BYTES}"), ("object", f"V{OBJECT_BYTES}")
)


def row_bytes(layout: Layout, **addresses: int) -> bytes:
    """The element of the map ``interpreters``, with the addresses that ``INTERPRETER`` begins with."""
    row = np.zeros(1, INTERPRETER_DTYPE)
    for name, value in (asdict(layout) | addresses).items():
        row[name] = value
    return row.tobytes()


def c_header() -> str:
    """The C declarations for probes/ebpf/bpf/python.c."""
    defines = {
        "MAX_INTERPRETERS": MAX_INTERPRETERS,
        "MAX_FRAMES": MAX_FRAMES,
        "WINDOW": WINDOW,
        "FILE_BYTES": FILE_BYTES,
        "NAME_BYTES": NAME_BYTES,
        "OBJECT_BYTES": OBJECT_BYTES,
        "TABLE_BYTES": TABLE_BYTES,
        "TABLE_PARTS": TABLE_PARTS,
        "STACK_RECORD": STACK_RECORD,
        "CODE_RECORD": CODE_RECORD,
        "LINE_RECORD": LINE_RECORD,
        "FORK_RECORD": FORK_RECORD,
        "HANDLE_RECORD": HANDLE_RECORD,
        "HANDLE_NAME_BYTES": HANDLE_NAME_BYTES,
        "HANDLE_NAMED": HANDLE_NAMED,
        "HANDLE_SAME": HANDLE_SAME,
        "HANDLE_QUERIED": HANDLE_QUERIED,
        "MAX_NATIVES": MAX_NATIVES,
        "SAMPLED": f"{SAMPLED}ULL",
        "NO_FRAME": f"{NO_FRAME}U",
        "NO_PYTHON": NO_PYTHON,
        "NOT_READ": NOT_READ,
        "NO_ROOM": NO_ROOM,
        "FIRST_STACK": f"{FIRST_STACK}ULL",
        "TLS_SLOTS": TLS_SLOTS,
        "TLS_KEYS": TLS_KEYS,
        "TLS_BLOCKS": TLS_BLOCKS,
        "TLS_MOST_KEYS": TLS_MOST_KEYS,
        "TLS_MODULES": TLS_MODULES,
        "TLS_MODULE_BYTES": TLS_MODULE_BYTES,
        "TLS_MOST_MODULES": TLS_MOST_MODULES,
        "TLS_STATIC": TLS_STATIC,
    }
    lines = [f"#define {name} {value}" for name, value in defines.items()]
    lines += c_struct("interpreter", INTERPRETER)
    lines += c_struct("python", PROCESS)
    lines += c_struct("py_frame", FRAME)
    lines += c_struct("native", NATIVE)
    lines += c_struct("fork_record", FORK)
    lines += c_struct("stack_head", STACK, "u64 natives[MAX_NATIVES];")
    lines += [
        "struct stack_record {",
        "\tstruct stack_head head;",
        "\tstruct py_frame frames[MAX_FRAMES];",
        "};",
    ]
    lines += c_struct("line_record", LINE)
    lines += c_struct("handle_record", HANDLE, f"char name[{HANDLE_NAME_BYTES}];")
    texts = (f"u8 file[{FILE_BYTES}];", f"u8 name[{NAME_BYTES}];", f"u8 object[{OBJECT_BYTES}];")
    lines += c_struct("code_record", CODE, *texts, f"u8 table[{TABLE_BYTES}];")
    return "\n".join(lines) + "\n"
