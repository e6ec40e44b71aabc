"""Common queries of a lake: GPU hours by cause, line, user or job; findings, sessions, losses."""

from __future__ import annotations

from typing import Final

_HOURS = "3.6e12"
_WHERE: Final = {
    "cause": "cause, title",
    "line": "cause, file, line, function",
    "user": '"user"',
    "job": "job",
}
GROUPS: Final = tuple(_WHERE)


def overview(by: str) -> str:
    """Return the SELECT of GPU hours lost in idle findings, most first.

    Hours are the middle of a finding's bounds, as in ``gputop explain``; ``share`` is of the GPU time of all
    sessions in the lake.

    Args:
        by: One of ``GROUPS``.
    """
    return (
        f"SELECT {_WHERE[by]}, sum(loss_ns) / {_HOURS} AS gpu_hours, "
        "sum(loss_ns) / (SELECT sum(gpu_span_ns) FROM sessions) AS share, "
        f"sum(loss_lower_ns) FILTER (level = 'proved') / {_HOURS} AS proved_hours, "
        "count(DISTINCT session_id) AS sessions "
        "FROM findings WHERE kind = 'idle' GROUP BY ALL ORDER BY gpu_hours DESC"
    )


FINDINGS: Final = (
    'SELECT f.cause, f.title, f.level, f.loss_ns / 1e6 AS loss_ms, f.kind, f.process, f."user", f.job, '
    "f.rank, f.file, f.line, f.function, s.host, s.path FROM findings f JOIN sessions s USING (session_id) "
    "ORDER BY f.loss_ns DESC, f.session_id, f.number"
)

# one row; each sum is null in a lake without sessions
COVERAGE: Final = (
    "SELECT count(*) AS recordings, count(DISTINCT host) AS hosts, min(start_wall_ns) AS first_ns, "
    "max(start_wall_ns + duration_ns) AS last_ns, sum(duration_ns) AS recorded_ns, "
    "sum(gpu_span_ns) AS gpu_ns, sum(idle_lower_ns) AS idle_least_ns, sum(idle_upper_ns) AS idle_most_ns, "
    "(SELECT sum(loss_ns) FROM findings WHERE kind = 'idle') AS explained_ns, sum(small_ns) AS small_ns, "
    "sum(unexplained_ns) AS unexplained_ns, sum(unknown_ns) AS unknown_ns, sum(lost_events) AS lost_events, "
    "count(*) FILTER (lost_events > 0) AS lossy, sum(unkept_ns) AS unkept_ns, "
    "count(*) FILTER (coalesce(gpu_span_ns, 0) = 0) AS without_gpu FROM sessions"
)
SESSIONS: Final = (
    f"SELECT class, verdict, host, path, gpu_span_ns / {_HOURS} AS gpu_time_hours, "
    f"idle_lower_ns / {_HOURS} AS idle_least_hours, idle_upper_ns / {_HOURS} AS idle_most_hours, "
    f"coalesce((SELECT sum(loss_ns) FROM findings f WHERE f.session_id = s.session_id AND kind = 'idle'), 0) "
    f"/ {_HOURS} AS gpu_hours, lost_events FROM sessions s ORDER BY gpu_hours DESC, path"
)
PROBLEMS: Final = "SELECT what, path, text FROM problems ORDER BY what, path"
