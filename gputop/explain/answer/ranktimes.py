"""Ranks of a job on this machine: who comes last to their collectives, and who waits for it for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from gputop.documents.explain_schema import RankJson
from gputop.format import format_count, format_ns, format_percent

_SHOWN: Final = 16  # in a text: as many as most machines have


@dataclass(frozen=True, slots=True)
class RankTimes:
    """When one rank came to the collectives that all ranks were seen to call; a rank may be a thread.

    Attributes:
        gpu: The GPU of its collectives, as its label; "" where that is not known.
        collectives: How many there were.
        last: In how many of them it came last.
        late_ns: How long after the first rank it came, all of them together.
        ahead_ns: How long before the last rank it came, all of them together: its GPU waited for no longer.
    """

    pid: int
    tid: int
    gpu: str
    collectives: int
    last: int
    late_ns: int
    ahead_ns: int

    @property
    def brief_gpu(self) -> str:
        """``GPU 1``, or ``device 1`` where a process alone knows it."""
        return self.gpu.partition(" of ")[0]

    def joined(self, later: RankTimes) -> RankTimes:
        """These, and what came next."""
        return replace(
            self,
            gpu=self.gpu or later.gpu,
            collectives=self.collectives + later.collectives,
            last=self.last + later.last,
            late_ns=self.late_ns + later.late_ns,
            ahead_ns=self.ahead_ns + later.ahead_ns,
        )


@dataclass(frozen=True, slots=True)
class RankReport:
    """The ranks, who is last most often first."""

    ranks: tuple[RankTimes, ...] = ()

    def joined(self, later: RankReport) -> RankReport:
        """This, and what came next."""
        ranks = {(one.pid, one.tid): one for one in self.ranks}
        for one in later.ranks:
            key = one.pid, one.tid
            ranks[key] = ranks[key].joined(one) if key in ranks else one
        return RankReport(in_order(ranks.values()))

    def of(self, pids: frozenset[int] | None) -> RankReport | None:
        """Of these processes, or of all; None where nothing is left."""
        ranks = tuple(one for one in self.ranks if pids is None or one.pid in pids)
        return RankReport(ranks) if ranks else None


def in_order(ranks: Iterable[RankTimes]) -> tuple[RankTimes, ...]:
    """Who is last most often first."""
    return tuple(sorted(ranks, key=lambda one: (-one.last, one.pid, one.tid)))


def ranks_json(report: RankReport) -> list[RankJson]:
    """The key ``ranks``."""
    return [
        {
            "pid": one.pid,
            "tid": one.tid,
            "gpu": one.gpu or None,
            "collectives": one.collectives,
            "last": one.last,
            "late_ns": one.late_ns,
            "ahead_ns": one.ahead_ns,
        }
        for one in report.ranks
    ]


def rank_texts(report: RankReport) -> list[str]:
    """Lines of text, who is last most often first."""
    rest = len(report.ranks) - _SHOWN
    more = [f"  and {rest} more"] if rest > 0 else []
    return ["Ranks:", *(f"  {_text(one)}" for one in report.ranks[:_SHOWN]), *more]


def _text(one: RankTimes) -> str:
    each = max(one.collectives, 1)
    gpu = f" on {one.brief_gpu}" if one.gpu else ""
    return (
        f"process {one.pid}, thread {one.tid}{gpu}: last in {format_percent(100 * one.last / each)} % of "
        f"{format_count(one.collectives)} collectives, {format_ns(one.late_ns / each)} after the first rank, "
        f"{format_ns(one.ahead_ns / each)} before the last one"
    )
