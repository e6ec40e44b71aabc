"""Rows about the collectives of one recording, bounded in number: arrival and end at each rank.

Collectives are numbered in the order of a process's calls since the creation of the communicator. All ranks
call them in the same order, so a number identifies one across hosts. Only collectives that end nowhere before
all ranks have begun them count. Of several that a host waits for together, the last one stands for all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from gputop.analysis.causes.cause import in_order
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.call_context import work_ended
from gputop.analysis.evidence.columns import FOREVER, Ints, Mask, covered, union
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.proofs.gaps import first_shown, held_kernels
from gputop.fleet.lake.lake_tables import Row
from gputop.fleet.ranks.communicator_ranks import Membership
from gputop.merging.rank_collectives import OF_ALL

MOST: Final = 256  # collectives of a rank in a lake
_BLOCKED_NS: Final = 25_000  # shorter calls did not block
_CAUSES: Final = 3  # causes of one collective, the largest
_IN_PROGRESS: Final = 7  # ncclInProgress: begun, and no failure
_UNSEEN: Final = "its creation was not recorded"
_MISSING: Final = "records are missing: later collectives have no number"


class Collectives:
    """The collectives of an explained recording."""

    def __init__(
        self, scene: AttributionContext, outcome: Outcome, members: Iterable[Membership], blind_ns: int
    ) -> None:
        """Find the collectives; see ``rows``.

        Args:
            scene, outcome: The explanation's data.
            members: Ranks of communicators.
            blind_ns: From here on calls may have been missed.
        """
        self._scene, self._outcome, self._members = scene, outcome, tuple(members)
        evidence = scene.evidence
        calls = evidence.calls
        ops = [op for op, name in enumerate(evidence.apis.names) if name in OF_ALL]
        went = np.isin(calls["ret"], (0, _IN_PROGRESS)) & ~calls["abandoned"]
        rows = np.flatnonzero(np.isin(calls["op"], ops) & went)
        rows = rows[
            ~scene.analysis.gpu.streams.captured(rows)
        ]  # captured ones run in a graph, at an unknown time
        order = np.argsort(calls["begin"][rows], kind="stable")
        self._rows = rows[order]
        # ends come from recorded kernels, else from the calls that prove them
        self._ended = work_ended(evidence, self._rows) if held_kernels(evidence) else None
        self._wait = first_shown(scene.analysis.gpu, rows)[order]
        self._blind = np.append(evidence.lost[0], blind_ns), np.append(evidence.lost[1], FOREVER)
        gaps = scene.gaps
        self._gap_pid = evidence.threads.pid[gaps.thread] if len(gaps) else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def rows(
        self, session_id: str, clock: str, processes: Mapping[int, Mapping[str, Any]]
    ) -> dict[str, list[Row]]:
        """Return rows of the tables ``communicators``, ``collectives`` and ``before_collectives``.

        Args:
            session_id: The recording.
            clock: Name of the clock of its times, the same for recordings of one boot.
            processes: Facts of each process.
        """
        found: dict[str, list[Row]] = {"communicators": [], "collectives": [], "before_collectives": []}
        rest = np.ones(len(self._rows), np.bool_)
        calls = self._scene.evidence.calls
        begin, handle = calls["begin"][self._rows], calls["aux"][self._rows]
        pid = calls["pid"][self._rows].astype(np.int64)
        for one in self._members:
            mine = (pid == one.pid) & (handle == np.uint64(one.handle))
            mine &= (begin >= one.since_ns) & (begin < one.until_ns)
            rest &= ~mine
            facts = _who(one.pid, processes) | {"session_id": session_id, "clock": clock}
            self._add(found, one, facts, np.flatnonzero(mine))
        for number in np.unique(pid[rest]).tolist():
            count = int(np.count_nonzero(rest & (pid == number)))
            facts = _who(number, processes) | {"session_id": session_id, "clock": clock}
            found["communicators"].append(NO_MEMBER | facts | {"collectives": count, "why": _UNSEEN})
        return found

    def _add(self, found: dict[str, list[Row]], one: Membership, facts: dict[str, Any], places: Ints) -> None:
        begin = self._scene.evidence.calls["begin"][self._rows[places]]
        known = begin < self._blind[0][self._blind[1] > one.since_ns].min()
        places, begin = places[known], begin[known]
        past = self._past(places)
        last = np.flatnonzero(past <= np.append(begin[1:], FOREVER - 1))  # of those awaited together
        kept = last[thinned(last)]
        head = facts | {"communicator": one.id, "rank": one.rank}
        member = _number(facts["session_id"], one)
        found["communicators"].append(
            NO_MEMBER
            | head
            | {
                "member": member,
                "ranks": one.ranks,
                "collectives": len(places),
                "waits": len(last),
                "kept": len(kept),
                "first_ns": int(begin[last[0]]) if len(last) else None,
                "last_ns": int(begin[last[-1]]) if len(last) else None,
                "why": None if known.all() else _MISSING,
            }
        )
        if not len(kept):
            return
        device = self._device(self._rows[places])
        since, moments = np.append(one.since_ns, past[last][:-1])[np.searchsorted(last, kept)], begin[kept]
        mine = (self._scene.gaps.device == device) & (self._gap_pid == one.pid)
        gaps = self._scene.gaps
        idle = covered(union(gaps.begin[mine], gaps.end[mine]), since, moments)
        drained = np.isin(moments, gaps.end[mine])
        slack = np.zeros(len(kept), np.int64)  # by the GPU's own clock
        if self._ended is None:
            slack = self._slack(self._rows[places[kept]], self._wait[places[kept]])
        for row, seq in enumerate(kept.tolist()):
            found["collectives"].append(
                {
                    "member": member,
                    "seq": seq,
                    "begin_ns": int(moments[row]),
                    "end_ns": int(past[seq]),
                    "slack_ns": int(slack[row]),
                    "idle_ns": int(idle[row]),
                    "drained": int(drained[row]),
                }
            )
        for row, cause, ns in self._causes(mine, since, moments):
            found["before_collectives"].append(
                {"member": member, "seq": int(kept[row]), "cause": cause, "ns": ns}
            )

    def _past(self, places: Ints) -> Ints:
        """When these had ended; FOREVER: unknown."""
        if self._ended is not None:
            return self._ended[places]
        wait = self._wait[places]
        return np.where(wait >= 0, self._scene.evidence.calls["end"][wait], FOREVER)

    def _slack(self, rows: Ints, waits: Ints) -> Ints:
        """By how much collectives may have ended before the calls that prove their end, ns.

        A blocking wait ends with the awaited work: the collective was last, or work that all ranks enqueued
        after it, or the host was busy before it waited. A call that found it done only proves that it ended
        since it was called.
        """
        calls = self._scene.evidence.calls
        blocked = self._scene.evidence.group_of(waits) != Group.QUERY
        blocked &= calls["end"][waits] - calls["begin"][waits] >= _BLOCKED_NS
        before: Ints = np.maximum(calls["begin"][waits] - calls["end"][rows], 0)
        return np.where(blocked, before, calls["end"][waits] - calls["begin"][rows])

    def _causes(self, gaps: Mask, since: Ints, until: Ints) -> list[tuple[int, str, int]]:
        """(row, cause, ns) of the idle time before each collective, the largest ones."""
        segments, numbers = self._scene.segments, [cause.number for cause in in_order()]
        mine = gaps[segments.gap] if len(gaps) else np.zeros(0, np.bool_)
        found: dict[int, list[tuple[int, str]]] = {}
        for cause in np.unique(self._outcome.cause[mine]).tolist():
            if cause < 0:
                continue
            chosen = mine & (self._outcome.cause == cause)
            covered_ns = covered(union(segments.begin[chosen], segments.end[chosen]), since, until)
            for row in np.flatnonzero(covered_ns).tolist():
                found.setdefault(row, []).append((int(covered_ns[row]), numbers[cause]))
        return [
            (row, cause, ns)
            for row, some in sorted(found.items())
            for ns, cause in sorted(some, reverse=True)[:_CAUSES]
        ]

    def _device(self, rows: Ints) -> int:
        """The GPU of these collectives; -1 if unknown."""
        streams = self._scene.analysis.gpu.streams
        found = np.unique(streams.device[streams.enqueue_stream[np.isin(streams.enqueue_row, rows)]])
        return int(found[0]) if len(found) == 1 else -1


NO_MEMBER: Final[dict[str, Any]] = {
    **dict.fromkeys(("member", "communicator", "rank", "ranks", "first_ns", "last_ns")),
    **dict.fromkeys(("collectives", "waits", "kept"), 0),
}


def thinned(numbers: Ints) -> Mask:
    """Keep at most ``MOST``, as a mask; ranks that keep fewer keep a subset of those that others keep."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    keep: Mask = np.ones(len(numbers), np.bool_)
    while np.count_nonzero(keep) > MOST:
        mixed, lowest = mixed >> np.uint64(1), mixed & np.uint64(1)
        keep &= lowest == 0
    return keep


def _number(session_id: str, one: Membership) -> int:
    """A number for a rank in a recording, which is shorter in each row than its identity."""
    words = f"{session_id} {one.pid} {one.handle} {one.since_ns}".encode()
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "big") >> 1


def _who(pid: int, processes: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    facts = processes.get(pid, {})
    return {"pid": pid, "process": facts.get("name") or None, "job": facts.get("job_id") or None}
