"""What a lake is asked most: what costs GPU hours, by cause, line, user and job; the findings themselves."""

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
    """The SELECT of GPU hours lost in idle findings, most first.

    Hours are the middle of what a finding may cost, as in ``gputop explain``; ``share`` is of the GPU time
    of all sessions in the lake.

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
