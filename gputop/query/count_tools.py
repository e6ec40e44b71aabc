"""Tools that count: calls, processes, stacks, the timeline, SQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from gputop.analysis.answer.picture import (
    ASSUMED,
    BLOCKED,
    BUSY,
    COLUMN_NS,
    FAMILIES,
    PRESUMED,
    PROVED,
    QUEUED,
    RUNNING,
    WHOLE,
)
from gputop.engine.session_totals import ProcessTotals
from gputop.errors import USAGE, CommandError
from gputop.exchange.session_tables import COLUMNS
from gputop.query.catalogue import Catalogue, Recording
from gputop.query.database import QueryResult
from gputop.query.query_output import plain
from gputop.query.reply import OwnText, in_ms, offset_of, page

SECONDS = 30.0  # of a query
MOST_ROWS = 10_000
_GROUPS = {
    "api": "api, layer, nested",
    "process": "pid",
    "thread": "pid, tid",
    "line": "c.pid, file, line, function, api",
}
_THREAD_LANES = 6
_KNOWN = frozenset(name for columns in COLUMNS.values() for name in columns)


def get_trace_stats(
    catalogue: Catalogue,
    session: str | None = None,
    from_s: float | None = None,
    to_s: float | None = None,
    pids: list[int] | None = None,
    group_by: Literal["api", "process", "thread", "line"] = "api",
    top_n: int = 10,
    cursor: str | None = None,
) -> str:
    """CUDA calls by function, process, thread or line: count, bytes, total, p50, p95, p99, longest."""
    recording = catalogue.get(session)
    groups = _GROUPS[group_by]
    source = "calls c join stacks s using (stack_id)" if group_by == "line" else "calls c"
    where = ["true"] if group_by == "api" else ["not nested"]
    where += ["depth_of_frame = 0"] if group_by == "line" else []
    where += [f"start_ns >= {_ns(from_s)}"] if from_s is not None else []
    where += [f"start_ns < {_ns(to_s)}"] if to_s is not None else []
    where += [f"c.pid in ({', '.join(str(int(pid)) for pid in pids)})"] if pids else []
    query = (
        f"select {groups}, count(*) as count, sum(bytes) as bytes, count(*) filter (ret <> 0) as not_zero, "
        "sum(duration_ns) / 1e6 as sum_ms, quantile_disc(duration_ns, 0.5) / 1e6 as p50_ms, "
        "quantile_disc(duration_ns, 0.95) / 1e6 as p95_ms, quantile_disc(duration_ns, 0.99) / 1e6 as p99_ms, "
        "max(duration_ns) / 1e6 as max_ms "
        f"from {source} where {' and '.join(where)} group by {groups} order by sum_ms desc, {groups}"
    ).replace("depth_of_frame", "s.depth")
    answer = recording.database().query(query, MOST_ROWS, SECONDS)
    names = [name.rpartition(".")[2] for name in answer.columns]
    rows = [dict(zip(names, map(_cell, row), strict=True)) for row in answer.rows]
    fixed = {
        "session": recording.id,
        "group_by": OwnText(group_by),
        "lost_events": recording.inspected()["lost"]["events"],
        "more_groups": answer.more,
        **missing_in(recording),
    }
    return page(fixed, "rows", rows, cursor, min(max(top_n, 1), 200))


def _cell(value: Any) -> Any:
    """A cell: times to a nanosecond; lists and maps as one text."""
    value = plain(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return round(value, 6) if isinstance(value, float) else value


def _ns(seconds: float) -> int:
    """A moment in ns, bounded to the range of the tables' columns."""
    return int(min(max(seconds, -1e9), 1e9) * 1e9)


def get_per_process_breakdown(
    catalogue: Catalogue,
    session: str | None = None,
    pid: int | None = None,
    top_n: int = 10,
    cursor: str | None = None,
) -> str:
    """Each process: its calls, context switches, time on a CPU, waiting for one, blocked; its parent."""
    recording = catalogue.get(session)
    frame = {row.pid: row for row in recording.frame(None).processes}
    rows: list[dict[str, Any]] = []
    for one in recording.totals().processes:
        if pid is not None and one.pid != pid:
            continue
        outer = [call for call in one.calls if not call.nested]
        known = frame.get(one.pid)
        rows.append(
            {
                "pid": one.pid,
                "parent_pid": known.parent_pid if known is not None else None,
                "name": one.name,
                "command": one.command,
                "exited": one.exited,
                "calls": sum(call.count for call in outer),
                "call_errors": sum(call.errors for call in outer),
                "calls_ms": in_ms(sum(call.sum_ns for call in outer)),
                "threads": len(one.threads),
                "voluntary_switches": sum(thread.voluntary_switches for thread in one.threads),
                "involuntary_switches": sum(thread.involuntary_switches for thread in one.threads),
                "on_cpu_ms": in_ms(sum(thread.on_cpu_ns for thread in one.threads)),
                "waited_for_cpu_ms": in_ms(sum(thread.runnable_ns for thread in one.threads)),
                "blocked_ms": in_ms(sum(thread.blocked_ns for thread in one.threads)),
                **_host_events(one),
                "most_costly_calls": [
                    {"api": call.api, "count": call.count, "sum_ms": in_ms(call.sum_ns)}
                    for call in sorted(outer, key=lambda call: -call.sum_ns)[:3]
                ],
            }
        )
    rows.sort(key=lambda row: (-row["calls_ms"], -row["on_cpu_ms"], row["pid"]))
    fixed = {"session": recording.id, "lost_events": recording.totals().lost.events}
    return page(fixed, "processes", rows, cursor, min(max(top_n, 1), 200))


def _host_events(process: ProcessTotals) -> dict[str, Any]:
    """Stays off the CPU and page faults, where known."""
    stays, faults = process.off_cpu, process.faults
    made: dict[str, Any] = {}
    if stays is not None and stays.average_ns is not None:
        made |= {"average_off_cpu_ms": in_ms(stays.average_ns), "worst_off_cpu_ms": in_ms(stays.worst_ns)}
        made |= {"waited_for_disk_ms": in_ms(stays.disk_ns)}
    if faults is not None:
        made |= {"minor_page_faults": faults.minor, "major_page_faults": faults.major}
    return made


def get_stacks(
    catalogue: Catalogue,
    session: str | None = None,
    kind: Literal["calls", "waits"] = "calls",
    api: str | None = None,
    pid: int | None = None,
    line: str | None = None,
    top_n: int = 5,
    cursor: str | None = None,
) -> str:
    """Stacks with their time, most first: of CUDA calls, or of waits of calling threads between calls."""
    recording = catalogue.get(session)
    found = recording.stacks()
    rows = [
        {
            "pid": one.pid,
            "name": found.names.get(one.pid, ""),
            "api": one.what if kind == "calls" else OwnText("between calls"),
            "count": one.count,
            "sum_ms": in_ms(one.ns),
            "stack": [frame.text() for frame in one.frames[:30]],
        }
        for one in (found.calls if kind == "calls" else found.waits)
        if (api is None or one.what == api)
        and (pid is None or one.pid == pid)
        and (line is None or any(line in frame.text() for frame in one.frames))
    ]
    return page(
        {"session": recording.id, "kind": OwnText(kind)}, "stacks", rows, cursor, min(max(top_n, 1), 100)
    )


def get_timeline(
    catalogue: Catalogue, from_s: float, to_s: float, session: str | None = None, buckets: int = 40
) -> str:
    """Time in buckets: GPUs at work, idle by cause, unknown; threads on a CPU, queued, blocked."""
    recording = catalogue.get(session)
    lanes, start_ns, names = recording.lanes()
    low = max(int((start_ns + _ns(from_s)) // COLUMN_NS) - lanes.first, 0)
    high = min(-int(-(start_ns + _ns(to_s)) // COLUMN_NS) - lanes.first, lanes.columns)
    if low >= high:
        raise CommandError("nothing is explained between these moments", USAGE)
    edges = np.unique(np.linspace(low, high, min(max(buckets, 1), 100) + 1).astype(np.int64))

    def means(shares: Any) -> list[float]:
        sums = np.add.reduceat(shares[:, :high].astype(np.float64).sum(axis=0), edges[:-1])
        percents: list[float] = np.round(100 * sums / np.diff(edges) / WHOLE, 1).tolist()
        return percents

    rows: list[dict[str, Any]] = []
    for gpu in lanes.gpus:
        idle = [means(gpu.shares[[PROVED + row, ASSUMED + row]]) for row in range(len(FAMILIES))]
        rows.append(
            {
                "lane": gpu.label,
                "busy_percent": means(gpu.shares[BUSY : BUSY + 1]),
                "presumably_busy_percent": means(gpu.shares[PRESUMED : PRESUMED + 1]),
                "idle_proved_percent": means(gpu.shares[PROVED:ASSUMED]),
                "idle_estimated_percent": means(gpu.shares[ASSUMED:PRESUMED]),
                "idle_mostly": [
                    OwnText(_mostly([part[bucket] for part in idle])) for bucket in range(len(edges) - 1)
                ],
            }
        )
    rows += [
        {
            "lane": names.get(thread.tid, ""),
            "pid": thread.pid,
            "tid": thread.tid,
            "on_cpu_percent": means(thread.states[RUNNING : RUNNING + 1]),
            "waits_for_cpu_percent": means(thread.states[QUEUED : QUEUED + 1]),
            "blocked_percent": means(thread.states[BLOCKED:]),
        }
        for thread in lanes.threads[:_THREAD_LANES]
    ]
    at = [round(((lanes.first + edge) * COLUMN_NS - start_ns) / 1e9, 3) for edge in edges.tolist()]
    fixed = {
        "session": recording.id,
        "bucket_edges_s": at,
        "threads_left_out": max(len(lanes.threads) - _THREAD_LANES, 0),
        "note": OwnText("what is missing to 100 % is not known"),
        **missing_in(recording),
    }
    return page(fixed, "lanes", rows)


def _mostly(parts: Sequence[float]) -> str:
    most = int(np.argmax(parts))
    return FAMILIES[most].word if parts[most] > 0 else "-"


def run_sql(
    catalogue: Catalogue,
    query: str,
    session: str | None = None,
    limit: int = 200,
    cursor: str | None = None,
) -> str:
    """One SELECT in DuckDB's SQL over a recording; gputop://schema lists the tables (sessions, processes,
    threads, calls, slices, stacks, gpu_samples, gaps, activities, findings). Times are integers of ns.
    """
    recording: Recording = catalogue.get(session)
    begin, limit = offset_of(cursor), min(max(limit, 1), MOST_ROWS)
    answer = recording.database().query(query, begin + limit, SECONDS)
    return rows_page({"session": recording.id, **missing_in(recording)}, answer, query, _KNOWN, cursor, limit)


def rows_page(
    fixed: Mapping[str, Any],
    answer: QueryResult,
    query: str,
    known: Collection[str],
    cursor: str | None,
    limit: int,
) -> str:
    """Return the result of a query as a reply.

    Args:
        fixed: Fields of every page.
        answer: Its first rows, with those before the page.
        query: The query: a column name in its text is no text of a traced program, one made by PIVOT is.
        known: Names of gputop's own columns.
        cursor: As of ``page``.
        limit: Rows of the page, at most.
    """
    rows = [[_cell(value) for value in row] for row in answer.rows]
    own = [name in known or (name.isidentifier() and name in query) for name in answer.columns]
    columns = [OwnText(name) if ours else name for name, ours in zip(answer.columns, own, strict=True)]
    document = {**fixed, "columns": columns, "more_rows": answer.more}
    return page(document, "rows", rows, cursor, limit)


def missing_in(recording: Recording) -> dict[str, Any]:
    """Return a field about records that are not in the tables; empty for a whole recording."""
    missing = recording.missing()
    return {"missing": list(missing)} if missing else {}
