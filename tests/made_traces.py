"""Traces of other tools made by hand, by their documented forms, with every kernel and call known."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

US = 1_000
STEPS, LAUNCHES = 30, 8
PID, TID = 4321, 4322
START = 1_700_000_000_000_000_000  # ns since the epoch


@dataclass(frozen=True, slots=True)
class Op:
    """A call, and what it gave the GPU; ns from the start."""

    name: str
    begin: int
    end: int
    kernel: tuple[int, int] | None = None
    what: str = "kernel"
    size: int = 0


ALONE, WORKERS = (
    f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__" for kind in ("SingleProcess", "MultiProcessing")
)


def launching() -> list[Op]:
    """Small kernels, each launched long after the one before has ended; nobody waits for any."""
    begins = [1000 * US + number * 100 * US for number in range(400)]
    return [
        Op("cudaLaunchKernel", begin, begin + 6 * US, (begin + 8 * US, begin + 28 * US)) for begin in begins
    ]


def loop(loader: str = ALONE) -> tuple[list[Op], list[tuple[str, int, int]]]:
    """(calls with their kernels, operators): 2 ms in a loader, a copy, launches, a wait, and so on."""
    ops: list[Op] = []
    operators: list[tuple[str, int, int]] = []
    now = 1000 * US
    for _ in range(STEPS):
        operators.append((loader, now, now + 2000 * US))
        now += 2010 * US
        free = now + 20 * US
        ops.append(Op("cudaMemcpyAsync", now, now + 10 * US, (free, free + 50 * US), "copy", 1 << 20))
        free, now = free + 50 * US, now + 15 * US
        for _ in range(LAUNCHES):
            operators.append(("aten::mm", now - 1 * US, now + 8 * US))
            free = max(free, now + 12 * US)
            ops.append(Op("cudaLaunchKernel", now, now + 6 * US, (free, free + 70 * US)))
            free, now = free + 70 * US, now + 12 * US
        ops.append(Op("cudaDeviceSynchronize", now, free + 5 * US))
        now = free + 20 * US
    return ops, operators


def busy_and_span(ops: list[Op]) -> tuple[int, int]:
    """How long the GPU was at work, and from its first to its last work; by a loop, ns."""
    times = sorted(op.kernel for op in ops if op.kernel is not None)
    busy, reach = 0, times[0][0]
    for begin, end in times:
        busy += max(end - max(begin, reach), 0)
        reach = max(reach, end)
    return busy, reach - times[0][0]


def kineto(
    path: Path,
    *,
    relative: bool = True,
    of: tuple[list[Op], list[tuple[str, int, int]]] | None = None,
) -> Path:
    """A torch.profiler trace, compressed where its name ends so.

    Args:
        path: Of the file.
        relative: Its times have a base.
        of: Calls and operators; None: those of ``loop``.
    """
    ops, operators = loop() if of is None else of
    shift = 0 if relative else START

    def event(cat: str, name: str, begin: int, end: int, pid: int, tid: int, **args: Any) -> dict[str, Any]:
        times = {"ts": (begin + shift) / 1000, "dur": (end - begin) / 1000}
        return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}

    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": PID, "tid": TID, "args": {"name": "main"}},
    ]
    events += [event("cpu_op", *row, PID, TID) for row in operators]
    cats = {"kernel": "kernel", "copy": "gpu_memcpy"}
    names = {"kernel": "void gemm<float, 4>(float*)", "copy": "Memcpy HtoD (Pinned -> Device)"}
    for number, op in enumerate(ops, 1):
        events.append(event("cuda_runtime", op.name, op.begin, op.end, PID, TID, correlation=number))
        if op.kernel is not None:
            told = {
                "correlation": number,
                "device": 0,
                "stream": 7,
                **({"bytes": op.size} if op.size else {}),
            }
            events.append(event(cats[op.what], names[op.what], *op.kernel, 0, 7, **told))
    document: dict[str, Any] = {"schemaVersion": 1, "traceEvents": events}
    document["deviceProperties"] = [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85_000_000_000}]
    if relative:
        document["baseTimeNanoseconds"] = START
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def nsys(path: Path, *, switches: Sequence[tuple[int, int, int, int]] = ()) -> Path:
    """What ``nsys export --type sqlite`` writes, by "SQLite Schema Reference" of its user guide.

    Args:
        path: Of the file.
        switches: Of the scheduler: when, whether a thread gets a CPU, which, and its state.
    """
    ops, operators = loop()
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts) + 1)

    thread, process = PID << 24 | TID, PID << 24
    database = sqlite3.connect(path)
    database.executescript(
        """
        create table StringIds (id integer primary key, value text);
        create table TARGET_INFO_SESSION_START_TIME (utcEpochNs integer, utcTime text, localTime text);
        create table TARGET_INFO_GPU (id integer, name text, totalMemory integer, uuid text);
        create table PROCESSES (globalPid integer, pid integer, name text);
        create table ThreadNames (nameId integer, priority integer, globalTid integer);
        create table CUPTI_ACTIVITY_KIND_RUNTIME (start integer, end integer, eventClass integer,
            globalTid integer, correlationId integer, nameId integer, returnValue integer,
            callchainId integer);
        create table CUPTI_ACTIVITY_KIND_KERNEL (start integer, end integer, deviceId integer,
            contextId integer, streamId integer, correlationId integer, globalPid integer,
            demangledName integer, shortName integer, gridX integer, gridY integer, gridZ integer);
        create table CUPTI_ACTIVITY_KIND_MEMCPY (start integer, end integer, deviceId integer,
            contextId integer, streamId integer, correlationId integer, globalPid integer, bytes integer,
            copyKind integer);
        create table NVTX_EVENTS (start integer, end integer, eventType integer, text text, globalTid integer,
            textId integer);
        """
    )
    for number, op in enumerate(ops, 1):
        row = (op.begin, op.end, 0, thread, number, text(f"{op.name}_v{7000 + number % 2 * 10}"), 0, None)
        database.execute("insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?,?,?,?,?,?,?,?)", row)
        if op.kernel is not None and op.what == "kernel":
            names = text("void gemm<float, 4>(float*)"), text("gemm")
            values = (*op.kernel, 0, 1, 7, number, process, *names, 1, 1, 1)
            database.execute(f"insert into CUPTI_ACTIVITY_KIND_KERNEL values ({','.join('?' * 12)})", values)
        elif op.kernel is not None:
            copy = (*op.kernel, 0, 1, 7, number, process, op.size, 1)
            database.execute("insert into CUPTI_ACTIVITY_KIND_MEMCPY values (?,?,?,?,?,?,?,?,?)", copy)
    for name, begin, end in operators:
        database.execute("insert into NVTX_EVENTS values (?,?,59,?,?,null)", (begin, end, name, thread))
    if switches:
        database.executescript(
            """
            create table SCHED_EVENTS (start integer, cpu integer, isSchedIn integer, globalTid integer,
                threadState integer, threadBlock integer);
            create table ENUM_SAMPLING_THREAD_STATE (id integer, name text, label text);
            insert into ENUM_SAMPLING_THREAD_STATE values (4, 'BLOCKED', 'Blocked'), (1, 'RUNNING', 'Runs');
            """
        )
        database.executemany(
            "insert into SCHED_EVENTS values (?,0,?,?,?,null)",
            [(at, onto, PID << 24 | tid, state) for at, onto, tid, state in switches],
        )
    database.execute("insert into TARGET_INFO_SESSION_START_TIME values (?,'','')", (START,))
    database.execute("insert into TARGET_INFO_GPU values (0,'NVIDIA H100',85000000000,'GPU-1')")
    database.execute("insert into PROCESSES values (?,?,'/usr/bin/python3')", (process, PID))
    database.execute("insert into ThreadNames values (?,0,?)", (text("main"), thread))
    database.executemany(
        "insert into StringIds values (?,?)", [(number, value) for value, number in texts.items()]
    )
    database.commit()
    database.close()
    return path


def ingero(path: Path) -> Path:
    """A database of Ingero's newer tables: calls, switches, block reads."""
    database = sqlite3.connect(path)
    database.executescript(
        """
        create table events (id text primary key, timestamp integer, pid integer, tid integer, source integer,
            op integer, duration integer, arg0 integer, arg1 integer, ret_code integer, stack_hash integer,
            node text);
        create table ops (source_id integer, op_id integer, name text);
        create table process_names (pid integer, name text, seen_at integer);
        insert into ops values (1, 3, 'cudaLaunchKernel'), (3, 1, 'sched_switch'), (5, 1, 'block_read'),
            (1, 5, 'cudaStreamSync');
        """
    )
    rows: list[tuple[int, ...]] = []
    for number in range(20):
        at = START + number * 10_000_000
        rows.append((at, 1, 3, 8_000_000 if number == 0 else 10_000, 0, 0))
        rows.append((at + 9_000_000, 3, 1, 500_000, 0, 0))  # ends then
        rows.append((at + 9_100_000, 5, 1, 600_000, 8, 0))
    for number, (at, source, op, duration, *arguments) in enumerate(rows):
        values = (f"n:{number}", at, PID, TID, source, op, duration, *arguments, 0, 0, "n")
        database.execute("insert into events values (?,?,?,?,?,?,?,?,?,?,?,?)", values)
    database.execute("insert into process_names values (?, 'python3', 0)", (PID,))
    database.commit()
    database.close()
    return path
