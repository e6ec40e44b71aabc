"""A lake by job, rank and session, with losses and causes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gputop.fleet.explain_task import content_hash
from gputop.fleet.lake.urls import is_url
from gputop.query.database import LockedDatabase, QueryResult

TABLES: Final = ("sessions", "findings", "communicators")
_ALL_ROWS: Final = 1 << 31
# job and rank of a process: from its findings, else from its largest communicator, usually the job's
_WHO: Final = (
    "WITH f AS (SELECT session_id, pid, max(job) AS job, max(rank) AS rank FROM findings GROUP BY 1, 2), "
    "c AS (SELECT session_id, pid, max(job) AS job, arg_max(rank, coalesce(ranks, 0)) AS rank "
    "FROM communicators GROUP BY 1, 2), "
    "who AS (SELECT session_id, pid, coalesce(f.job, c.job) AS job, coalesce(f.rank, c.rank) AS rank "
    "FROM f FULL JOIN c USING (session_id, pid)) "
)
_SESSIONS: Final = (
    "SELECT session_id, path, host, start_wall_ns, duration_ns, class, coalesce(verdict, ''), "
    "coalesce(gpu_span_ns, 0), lost_events FROM sessions"
)
_MEMBERS: Final = (
    f"{_WHO} SELECT DISTINCT session_id, job, rank FROM who UNION ALL "
    "SELECT session_id, session_job, NULL FROM sessions WHERE session_id NOT IN (SELECT session_id FROM who)"
)
_LOSSES: Final = (
    f"{_WHO} SELECT session_id, w.job, w.rank, cause || ' ' || title AS cause, sum(loss_ns) AS ns "
    "FROM findings JOIN who w USING (session_id, pid) WHERE kind = 'idle' GROUP BY ALL"
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session in a lake."""

    id: str  # SHA-256 of its file's content
    path: str  # path of the file when it was ingested
    host: str | None
    start_wall_ns: int
    duration_ns: int
    kind: str | None  # the class of the verdict; None: there is none
    verdict: str
    gpu_ns: int  # explained GPU time; 0 for recordings of sums only
    lost_events: int


@dataclass(slots=True)
class SessionGroup:
    """Sessions of a job, of one of its ranks, or a single one of these."""

    # job, rank: common to them; None: unknown
    job: str | None
    rank: int | None = None
    sessions: dict[str, Recorded] = field(default_factory=dict)  # by id
    ranks: set[int] = field(default_factory=set)  # ranks among them
    # GPU time lost in idle findings of these processes, by cause
    lost_ns: Counter[str] = field(default_factory=Counter)

    @property
    def loss_ns(self) -> float:
        return sum(self.lost_ns.values())

    @property
    def gpu_ns(self) -> int:
        """GPU time of its sessions."""
        return sum(one.gpu_ns for one in self.sessions.values())

    @property
    def lost_events(self) -> int:
        return sum(one.lost_events for one in self.sessions.values())

    @property
    def cause(self) -> str:
        """The most expensive cause, or ""."""
        return max(self.lost_ns, key=lambda cause: (self.lost_ns[cause], cause)) if self.lost_ns else ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The known hosts of its sessions."""
        return tuple(sorted({one.host for one in self.sessions.values() if one.host}))


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that the others of its communicator wait for; see docs/fleet.md."""

    job: str | None
    path: str
    rank: int
    late_ms: float
    cause: str


class Lake:
    """All sessions of a lake, grouped; the most expensive come first."""

    def __init__(self, database: LockedDatabase, seconds: float) -> None:
        """Read them.

        Args:
            database: The lake's, with ``TABLES``.
            seconds: Time limit of a query.

        Raises:
            GputopError: A query exceeds its time or memory.
        """

        def rows(text: str) -> Iterable[tuple[Any, ...]]:
            return database.query(text, _ALL_ROWS, seconds).rows

        known = {row[0]: Recorded(*row) for row in rows(_SESSIONS)}
        self._sessions: dict[tuple[str | None, int | None, str], SessionGroup] = {}
        for id, job, rank in rows(_MEMBERS):
            if id in known:
                self._sessions[job, rank, id] = SessionGroup(job, rank, {id: known[id]}, _one(rank))
        for id, job, rank, cause, ns in rows(_LOSSES):
            if (job, rank, id) in self._sessions:
                self._sessions[job, rank, id].lost_ns[cause] += ns
        ranks = Counter(id for _job, rank, id in self._sessions if rank is not None)
        self._several = {id: ranks[id] > 1 for id in known}

    def jobs(self) -> list[SessionGroup]:
        return _grouped(self._sessions.values(), lambda one: SessionGroup(one.job))

    def ranks(self, job: str | None) -> list[SessionGroup]:
        mine = [one for one in self._sessions.values() if one.job == job]
        return _grouped(mine, lambda one: SessionGroup(job, one.rank))

    def sessions(self, job: str | None, rank: int | None) -> list[SessionGroup]:
        mine = [one for one in self._sessions.values() if (one.job, one.rank) == (job, rank)]
        return _ordered(mine)

    def late_in(self, group: SessionGroup, late: Iterable[Late]) -> list[Late]:
        """Return the late ranks of a group, in the given order.

        Ranks of a sub-communicator are numbered anew. So ranks are matched by recording, and by number only
        if the recording holds several.
        """
        paths = {one.path: self._several[one.id] for one in group.sessions.values()}
        return [
            one
            for one in late
            if one.path in paths and (group.rank in (None, one.rank) or not paths[one.path])
        ]


def late_ranks(answer: QueryResult) -> list[Late]:
    """Return the late ranks in an answer of ``stragglers``, the most expensive first."""
    rows: Iterable[Mapping[str, Any]] = (dict(zip(answer.columns, row, strict=True)) for row in answer.rows)
    return [
        Late(
            row["job"],
            row["path"],
            int(row["late_rank"]),
            row["late_ms"],
            row["causes"] or row["title"] or "",
        )
        for row in rows
        if row["late_rank"] is not None
    ]


def why_not(one: Recorded) -> str:
    """Return why the file of a session cannot be opened, in a sentence; "": it can."""
    if is_url(one.path):
        return f"{one.path} lies in object storage: fetch it, then gputop replay it"
    if not os.path.exists(one.path):
        return f"{one.path} is not at the path where it was ingested"
    try:
        same = content_hash(one.path) == one.id
    except OSError as error:
        return f"{one.path} cannot be read: {error.strerror}"
    return "" if same else f"{one.path} is not the recording that was ingested: its content has changed"


def _one(rank: int | None) -> set[int]:
    return set() if rank is None else {rank}


def _grouped(sessions: Iterable[SessionGroup], named: Any) -> list[SessionGroup]:
    groups: dict[tuple[str | None, int | None], SessionGroup] = {}
    for one in sessions:
        group: SessionGroup = named(one)
        group = groups.setdefault((group.job, group.rank), group)
        group.sessions |= one.sessions
        group.ranks |= one.ranks
        group.lost_ns.update(one.lost_ns)
    return _ordered(groups.values())


def _ordered(groups: Iterable[SessionGroup]) -> list[SessionGroup]:
    """The most expensive first; those without loss by name."""

    def place(one: SessionGroup) -> tuple[float, str, int, str]:
        return -one.loss_ns, one.job or "", -1 if one.rank is None else one.rank, min(one.sessions)

    return sorted(groups, key=place)
