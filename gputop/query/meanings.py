"""The meaning of the tables of a recording: for authors of SQL, and for docs/exchange.md."""

from __future__ import annotations

from gputop.exchange.session_tables import COLUMNS

# table -> meaning of a row
ROWS: dict[str, str] = {
    "sessions": "the recording",
    "processes": "each watched process",
    "threads": "each thread of them",
    "calls": "each call",
    "slices": "each stay off the CPU",
    "stacks": "each frame of a stack",
    "gpu_samples": "each GPU at each sample of NVML",
    "process_samples": "each process on a GPU at each sample of NVML",
    "host_samples": "each second",
    "gaps": "each piece of idle time of a GPU",
    "activities": "each activity of a GPU, each range and operator, with --inside or imported",
    "findings": "each finding, as gputop.explain/1",
}

# table -> column -> meaning, where the name does not show it
MEANINGS: dict[str, dict[str, str]] = {
    "sessions": {
        "source": "gputop, or whose file was imported",
        "recorder": "its version",
        "start_wall_ns": "since the epoch",
        "start_mono_ns": "CLOCK_MONOTONIC",
        "idle_estimate_ns": "as gputop.explain/1",
    },
    "threads": {
        "runnable_ns": "wanted a CPU",
    },
    "calls": {
        "nested": "made by another traced call, in whose time its own lies",
        "within": "a launch nested in another, with the times and code of that one",
        "abandoned": "never returned",
        "direction": "cudaMemcpyKind",
        "nivcsw": "run-queue time and switches during it, where counted",
        "stack_id": "below 4: no line was looked for, or found",
        "kernel": "that is launched",
        "shared_bytes": "grid, block and dynamic shared memory of a launch, null: not known",
        "range": "that its thread was in when it began: epoch 1/step 2/forward",
    },
    "slices": {
        "runnable_ns": "its end, spent in a run queue",
        "cpu": "where it came back",
        "state": "of the task when it left",
        "waker_tid": "0: an interrupt, or not known",
        "next_tid": "the thread that got the CPU",
    },
    "stacks": {
        "depth": "0: innermost",
        "line": "0: native code",
    },
    "process_samples": {
        "memory_percent": "time in which it read or wrote GPU memory",
        "rss_bytes": "resident on the host",
    },
    "host_samples": {
        "cpu_percent": "100: all CPUs busy",
        "pressure_io_percent": "PSI, some",
    },
    "gaps": {
        "cause": "empty: not explained",
        "level": "proved, strong, estimated",
        "tid": "the thread at the end of its chain",
        "range": "that this thread was in at its begin",
    },
    "activities": {
        "what": "kernel, copy, fill, graph (on the GPU); operator, range, python, span; GPU range; wait; "
        "os call; off the CPU; overhead; block_read, …",
        "detail": "shapes of an operator's inputs",
        "direction": "of a copy: cudaMemcpyKind",
        "memory": "of the host, in a copy: 0 pageable, 1 pinned, 2 device, 3 array, 4 managed",
        "graph": "CUDA graph that ran it",
        "call_start_ns": "of the call that enqueued it, on thread call_tid: start_ns in calls",
        "queue_ns": "from there to its own begin",
        "range": "around that call; of what a thread did, around its begin and itself",
    },
}


def described() -> str:
    """Return all tables with their columns and types, a paragraph each."""
    parts = []
    for table, columns in COLUMNS.items():
        known = MEANINGS.get(table, {})
        descriptions = (
            f"{name} {kind}" + (f" ({known[name]})" if name in known else "")
            for name, kind in columns.items()
        )
        parts.append(f"{table}: a row for {ROWS[table]}\n  {', '.join(descriptions)}")
    return "\n".join(parts) + "\n"
