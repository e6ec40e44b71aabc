"""The collectives of a recording by rank, read part by part: begin and proved end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gputop.analysis.evidence.call_context import work_ended
from gputop.analysis.evidence.columns import FOREVER, Ints
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import GpuTime, first_shown, held_kernels
from gputop.analysis.window import Stretch
from gputop.api.reading import SILENT, Progress
from gputop.api.session import Session, reader_of
from gputop.api.stretches import MEMORY, filled, joined
from gputop.parts.mapreduce import Segment

# none of these ends at one rank before all ranks have begun it
OF_ALL: Final = ("ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclAlltoAll")
_OP_SHIFT: Final = 60  # numbers of bytes need fewer bits


@dataclass(frozen=True, slots=True)
class Rank:
    """The collectives of one process in one communicator, in order."""

    what: Ints  # function and bytes of each, as one number
    begin: Ints  # begin of its call
    done: Ints  # when it had certainly ended; FOREVER if no call waited
    whole: bool  # the first one is the first of the process


@dataclass(frozen=True, slots=True)
class _Part:
    """The collectives of a part, by process and communicator, and stretches with missing records."""

    ranks: Mapping[tuple[int, int], Rank]
    lost: tuple[Ints, Ints]


class _Meeting:
    """Finds them part by part (``gputop.parts.mapreduce.ChainedWork``)."""

    def __init__(self, session: Session) -> None:
        self._header = dict(session.header)
        self._marks = reader_of(session).marks

    def begin(self) -> Stretch:
        """Start with nothing known."""
        return Stretch(self._header)

    def follow(self, segment: Segment, before: Stretch) -> tuple[Stretch | None, Callable[[], _Part]]:
        """Return the state for the next part, and the task of this one."""
        since = int(self._marks[segment.after_mark]) if segment.after_mark >= 0 else -FOREVER
        return filled(segment, before, lambda window, until_ns: _part_of(window.evidence(), since, until_ns))

    def merge(self, earlier: _Part, later: _Part) -> _Part:
        ranks = dict(earlier.ranks)
        for key, more in later.ranks.items():
            known = ranks.get(key)
            ranks[key] = more if known is None else _behind(known, more)
        lost = [np.concatenate(ends) for ends in zip(earlier.lost, later.lost, strict=True)]
        return _Part(ranks, (lost[0], lost[1]))

    def finish(self, whole: _Part) -> list[Rank]:
        """Return the longest run without losses of each, since its number is a count from the first."""
        return [run for rank in whole.ranks.values() if len((run := _longest(rank, whole.lost)).begin)]


def ranks_of(session: Session, progress: Progress = SILENT, memory: int = MEMORY) -> list[Rank]:
    """Return the collectives of a recording of any length."""
    work = _Meeting(session)
    return work.finish(joined(work, session, memory, progress))


def _part_of(evidence: Evidence, since_ns: int, until_ns: int) -> _Part:
    calls = evidence.calls
    ops = [op for op, name in enumerate(evidence.apis.names) if name in OF_ALL]
    mine = np.isin(calls["op"], ops) & (calls["ret"] == 0) & ~calls["abandoned"]
    rows = np.flatnonzero(mine & (calls["end"] > since_ns) & (calls["end"] <= until_ns))
    lost = evidence.lost[0].copy(), evidence.lost[1].copy()
    if not len(rows):
        return _Part({}, lost)
    rows = rows[np.argsort(calls["begin"][rows], kind="stable")]
    if held_kernels(evidence):
        done = work_ended(evidence, rows)
    else:
        shown = first_shown(GpuTime(evidence), rows)
        done = np.where(shown >= 0, calls["end"][shown], FOREVER)
    number = np.zeros(len(evidence.apis.names), np.int64)
    for op in ops:
        number[op] = OF_ALL.index(evidence.apis.names[op])
    what = (number[calls["op"][rows]] << _OP_SHIFT) | calls["bytes"][rows].astype(np.int64)
    pid, handle = calls["pid"][rows].astype(np.int64), calls["aux"][rows]
    found: dict[tuple[int, int], Rank] = {}
    for key in sorted(set(zip(pid.tolist(), handle.tolist(), strict=True))):
        own = (pid == key[0]) & (handle == np.uint64(key[1]))
        found[key] = Rank(what[own], calls["begin"][rows[own]], done[own], key[0] in evidence.complete)
    return _Part(found, lost)


def _behind(rank: Rank, later: Rank) -> Rank:
    pairs = ((rank.what, later.what), (rank.begin, later.begin), (rank.done, later.done))
    what, begin, done = (np.concatenate(pair) for pair in pairs)
    return Rank(what, begin, done, rank.whole)


def _longest(rank: Rank, lost: tuple[Ints, Ints]) -> Rank:
    begins, ends = np.sort(lost[0]), np.sort(lost[1])
    place = np.searchsorted(ends, rank.begin, side="right")
    sure = place == np.searchsorted(begins, rank.begin, side="right")  # not while records were lost
    if not sure.any():
        return Rank(rank.what[:0], rank.begin[:0], rank.done[:0], whole=False)
    run = int(np.bincount(place[sure]).argmax())
    own = sure & (place == run)
    return Rank(rank.what[own], rank.begin[own], rank.done[own], rank.whole and run == 0)
