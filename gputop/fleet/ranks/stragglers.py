"""Late ranks in a lake, joined over hosts: lateness and cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

import numpy as np

from gputop.analysis.causes.cause import every
from gputop.analysis.evidence.columns import Ints
from gputop.fleet.ranks.alignment import FEWEST, UNKNOWN
from gputop.fleet.ranks.lateness import CollectiveTimes, LatenessVerdict, blamed, judge
from gputop.query.database import LockedDatabase, QueryResult

TABLES: Final = ("sessions", "findings", "communicators", "collectives", "before_collectives")
COLUMNS: Final = (
    "job", "communicator", "seen", "ranks", "late_rank", "host", "process", "late_ms", "share", "last",
    "gpu_hours", "cause", "causes", "title", "file", "line", "function", "collectives", "clock_error_ms",
    "why", "path",
)  # fmt: skip
NO_CAUSE: Final = "late, cause unknown"
_AT_ONCE: Final = 32  # communicators read together: each query scans the whole table
_ALL_ROWS: Final = 1 << 31
# a lake's content is untrusted
_ID, _HASH = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}")
_MEMBERS = (
    "SELECT communicator, rank, ranks, session_id, member, pid, process, job, clock, waits, kept, first_ns, "
    "last_ns, c.why, host, path FROM communicators c JOIN sessions USING (session_id) "
    "WHERE communicator IS NOT NULL AND rank IS NOT NULL AND (ranks IS NULL OR ranks > 1) "
    "AND (collectives > 0 OR c.why IS NOT NULL) ORDER BY communicator, rank, kept DESC, path"
)
_COLLECTIVES = (
    "SELECT member, seq, begin_ns, coalesce(end_ns, -1), slack_ns, idle_ns, drained FROM collectives "
    "WHERE member IN ({})"
)
_CAUSES = (
    "SELECT member, seq, TRY_CAST(substr(cause, 2) AS BIGINT) AS number, ns FROM before_collectives "
    "WHERE member IN ({}) AND number IS NOT NULL"
)
_MEMBER, _SEQ, _BEGIN, _END, _SLACK, _IDLE, _DRAINED = range(7)
_CAUSE, _NS = 2, 3
_UNSEEN = "SELECT count(*) AS many FROM communicators WHERE communicator IS NULL"
Member = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Late ranks, the most expensive first."""

    answer: QueryResult  # a row each, see docs/fleet.md
    # late, healthy, unknown: numbers of communicators with a late rank, without, and undecided
    late: int
    healthy: int
    unknown: int
    unnumbered: int  # processes with collectives of unknown communicators


def stragglers(database: LockedDatabase, seconds: float, *, rest: bool, limit: int) -> Stragglers:
    """Judge every communicator of a lake.

    Args:
        database: The lake's, with ``TABLES``.
        seconds: Time limit of a query.
        rest: Also return communicators without a late rank, with the reason.
        limit: Most rows.

    Raises:
        GputopError: A query exceeds its time or memory.
    """
    lake = _Lake(database, seconds)
    rows: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    healthy = 0
    communicators = lake.communicators()
    while some := list(islice(communicators, _AT_ONCE)):
        lake.judge(some)
        causes = lake.causes([one for one in some if one.verdict.late is not None])
        for one in some:
            healthy += one.verdict.healthy
            (others if one.verdict.late is None else rows).append(one.summary() | lake.blame(one, causes))
    rows.sort(key=lambda row: -row["gpu_hours"])
    answers = rows + (others if rest else [])
    shown = tuple(tuple(row.get(name) for name in COLUMNS) for row in answers[:limit])
    (unseen,) = lake.rows(_UNSEEN)
    answer = QueryResult(COLUMNS, shown, len(answers) > limit)
    return Stragglers(answer, len(rows), healthy, len(others) - healthy, int(unseen["many"]))


class _Communicator:
    """One communicator with its recorded ranks."""

    def __init__(self, communicator: str, members: Sequence[Member]) -> None:
        self.id, self.members = communicator, members
        # ranks with too few rows are left out, so that the others can be judged
        self.ranks = [row for row in members if row["kept"] >= FEWEST]
        self.seq: Ints = np.zeros(0, np.int64)
        self.verdict = LatenessVerdict(0)

    def judge(self, rows: Ints) -> None:
        """Find its late rank; ``rows`` are those of its ranks, as of ``_COLLECTIVES``."""
        if not self.ranks:
            why = next((row["why"] for row in self.members if row["why"]), None)
            self.verdict = LatenessVerdict(
                0, why=why or f"its hosts waited for fewer than {FEWEST} collectives"
            )
            return
        self.seq = np.unique(rows[:, _SEQ])
        self.seq = self.seq[(self.matrix(rows, _BEGIN, UNKNOWN) != UNKNOWN).all(axis=1)]
        self.verdict = judge(
            CollectiveTimes(
                begin=self.matrix(rows, _BEGIN, UNKNOWN),
                end=self.matrix(rows, _END, UNKNOWN),
                slack=self.matrix(rows, _SLACK, 0),
                idle=self.matrix(rows, _IDLE, 0),
                drained=self.matrix(rows, _DRAINED, 0) > 0,
                clock=np.unique([row["clock"] for row in self.ranks], return_inverse=True)[1],
                period_ns=self._period(),
            )
        )

    def matrix(self, rows: Ints, column: int, empty: int) -> Ints:
        """Collectives that all ranks began (rows) by ranks (columns)."""
        made = np.full((len(self.seq), len(self.ranks)), empty, np.int64)
        members = np.array([row["member"] for row in self.ranks], np.int64)
        order = np.argsort(members)
        rows = rows[np.isin(rows[:, _SEQ], self.seq)]
        place = order[np.searchsorted(members, rows[:, _MEMBER], sorter=order)]
        made[np.searchsorted(self.seq, rows[:, _SEQ]), place] = rows[:, column]
        return made

    def summary(self) -> dict[str, Any]:
        """Return its row, without the cause."""
        verdict = self.verdict
        result: dict[str, Any] = {
            "job": next((row["job"] for row in self.members if row["job"]), None),
            "communicator": self.id,
            "seen": len(self.ranks),
            "ranks": self.members[0]["ranks"],
            "collectives": verdict.used,
            "clock_error_ms": verdict.error_ns / 1e6,
            "why": verdict.why or None,
        }
        if verdict.late is None:
            return result
        late = self.ranks[verdict.late]
        waits = float(np.median([row["waits"] for row in self.ranks]))
        return result | {
            "late_rank": late["rank"],
            "host": late["host"],
            "process": late["process"],
            "path": late["path"],
            "late_ms": verdict.late_ns / 1e6,
            "share": verdict.share,
            "last": verdict.last,
            "gpu_hours": verdict.late_ns * waits * (len(self.ranks) - 1) / 3.6e12,
        }

    def _period(self) -> float:
        """Time between two waits for collectives, ns."""
        long = [
            (row["last_ns"] - row["first_ns"]) / (row["waits"] - 1) for row in self.ranks if row["waits"] > 1
        ]
        return float(np.median(long)) if long else 0.0


class _Lake:
    """The tables of a lake, read for some communicators at a time."""

    def __init__(self, database: LockedDatabase, seconds: float) -> None:
        self._database, self._seconds = database, seconds

    def communicators(self) -> Iterator[_Communicator]:
        """Yield those with several ranks. Of a rank in several recordings the one with most rows counts."""
        for communicator, members in groupby(self.rows(_MEMBERS), lambda row: row["communicator"]):
            if _ID.fullmatch(str(communicator)):
                one_each = [next(some) for _rank, some in groupby(members, lambda row: row["rank"])]
                yield _Communicator(str(communicator), one_each)

    def judge(self, some: Sequence[_Communicator]) -> None:
        """Find the late rank of each."""
        rows = self._of(_COLLECTIVES, some)
        for one in some:
            one.judge(_mine(rows, one))

    def causes(self, some: Sequence[_Communicator]) -> Ints:
        return self._of(_CAUSES, some)

    def blame(self, one: _Communicator, causes: Ints) -> dict[str, Any]:
        """Return the cause of a late rank, and the line of its own finding; empty without one."""
        if one.verdict.late is None:
            return {}
        rows = _mine(causes, one)
        by_cause = {
            cause.number: one.matrix(rows[rows[:, _CAUSE] == int(cause.number[1:])], _NS, 0)
            for cause in every()
        }
        found = blamed(by_cause, one.verdict.late, one.verdict.late_ns)
        if not found:
            return {"title": NO_CAUSE}
        number = found[0][0]
        blame = {
            "cause": number,
            "causes": ", ".join(f"{cause} {100 * share:.0f} %" for cause, share in found),
            "title": next(cause.title for cause in every() if cause.number == number),
        }
        return blame | self._line(one.ranks[one.verdict.late], number)

    def rows(self, text: str) -> Iterator[dict[str, Any]]:
        answer = self._database.query(text, _ALL_ROWS, self._seconds)
        return (dict(zip(answer.columns, row, strict=True)) for row in answer.rows)

    def _line(self, late: Member, cause: str) -> dict[str, Any]:
        session_id = str(late["session_id"])
        if not _HASH.fullmatch(session_id):
            return {}
        text = (
            f"SELECT file, line, function FROM findings WHERE session_id = '{session_id}' "
            f"AND pid = {int(late['pid'])} AND cause = '{cause}' ORDER BY loss_ns DESC LIMIT 1"
        )
        return next(self.rows(text), {})

    def _of(self, text: str, some: Iterable[_Communicator]) -> Ints:
        """All columns as numbers, of the ranks of some communicators."""
        members = [str(int(row["member"])) for one in some for row in one.ranks]
        if not members:
            return np.zeros((0, 7), np.int64)
        answer = self._database.query(text.format(", ".join(members)), _ALL_ROWS, self._seconds)
        return np.array(answer.rows, np.int64).reshape(len(answer.rows), len(answer.columns))


def _mine(rows: Ints, one: _Communicator) -> Ints:
    mine: Ints = rows[np.isin(rows[:, _MEMBER], [row["member"] for row in one.ranks])]
    return mine
