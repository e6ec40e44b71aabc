"""Processes under the process that started them; a folded branch is one row with the sums of all of it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gputop.engine.frame import ProcessRow
from gputop.format import escape_text

_SUMMED = (
    "calls_per_second",
    "voluntary_per_second",
    "involuntary_per_second",
    "runnable_percent",
    "on_cpu_percent",
    "sm_percent",
    "watts",
    "memory_percent",
    "rss_bytes",
)


@dataclass(frozen=True, slots=True)
class Tree:
    """What a process table shows as a tree.

    Attributes:
        rows: The rows in sight; the row of a folded branch has its sums.
        parents: The parent of each row that has one among them.
        sums: By pid, the sums of each branch, folded or not: what it is sorted by.
        leads: By pid, what stands before the name.
        members: By pid of a folded branch, all pids in it.
    """

    rows: tuple[ProcessRow, ...] = ()
    parents: Mapping[int, int] = field(default_factory=dict)
    sums: Mapping[int, ProcessRow] = field(default_factory=dict)
    leads: Mapping[int, str] = field(default_factory=dict)
    members: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def arranged(self, order: Iterable[Hashable]) -> list[Hashable]:
        """An order of pids as a tree: who has a parent stands below it, all else stays as it was."""
        below: dict[Hashable, list[Hashable]] = {}
        for pid in order:
            below.setdefault(self.parents.get(pid), []).append(pid)  # type: ignore[call-overload]
        out: list[Hashable] = []
        waiting = below.get(None, [])[::-1]
        while waiting:
            pid = waiting.pop()
            out.append(pid)
            waiting += below.get(pid, [])[::-1]
        return out


def parents_of(rows: Sequence[ProcessRow]) -> dict[int, int]:
    """The parent of each process that has one among them; a circle, which only a forged file has, is cut."""
    known = {row.pid for row in rows}
    parents = {row.pid: row.parent_pid for row in rows if row.parent_pid in known}
    for pid in list(parents):
        seen = {pid}
        above = parents.get(pid)
        while above is not None and above not in seen:
            seen.add(above)
            above = parents.get(above)
        if above == pid:
            del parents[pid]
    return parents


def ancestors(pid: int, parents: Mapping[int, int]) -> list[int]:
    """The processes above one, nearest first."""
    out = []
    while pid in parents:
        pid = parents[pid]
        out.append(pid)
    return out


def tree_of(
    rows: Sequence[ProcessRow],
    unfolded: Collection[int],
    *,
    ascii_only: bool = False,
    parents: Mapping[int, int] | None = None,
    labels: Mapping[int, str] | None = None,
) -> Tree:
    """The tree of some processes.

    Args:
        rows: Each process once.
        unfolded: Pids of the branches whose members are shown.
        parents: In place of who started whom.
        labels: By pid, the name of its branch, before that of the process at its top.
    """
    parents = parents_of(rows) if parents is None else parents
    above = {row.pid: ancestors(row.pid, parents) for row in rows}
    branches: dict[int, list[ProcessRow]] = {}
    for row in rows:
        for pid in above[row.pid]:
            branches.setdefault(pid, []).append(row)
    sums = {row.pid: summed(row, branches[row.pid]) for row in rows if row.pid in branches}
    shown, leads, members = [], {}, {}
    corner = "`" if ascii_only else "└"
    for row in rows:
        if any(pid not in unfolded for pid in above[row.pid]):
            continue
        folded = row.pid in branches and row.pid not in unfolded
        shown.append(sums[row.pid] if folded else row)
        depth = len(above[row.pid])
        lead = "  " * (depth - 1) + corner + " " if depth else ""
        if folded:
            members[row.pid] = (row.pid, *(member.pid for member in branches[row.pid]))
            lead += f"+{len(branches[row.pid])} "
        elif row.pid in branches:
            lead += "- "
        if labels and not depth and row.pid in branches:
            lead += f"{escape_text(labels[row.pid], ascii_only=ascii_only)} "
        leads[row.pid] = lead
    return Tree(tuple(shown), parents, sums, leads, members)


def summed(row: ProcessRow, others: Sequence[ProcessRow]) -> ProcessRow:
    """A process with the figures of its descendants added.

    The top call is that of whoever spends most time in one. BLK%, calls and threads stay its own: shares of
    different threads' time have no sum.

    Args:
        others: All its descendants.
    """
    every = (row, *others)
    top = max(every, key=lambda one: one.top_api_ns_per_second)
    memory = [one.gpu_memory_bytes for one in every if one.gpu_memory_bytes is not None]
    gpus = [one.gpus for one in every if one.gpus is not None]
    sums: dict[str, Any] = {name: _sum([getattr(one, name) for one in every]) for name in _SUMMED}
    return replace(
        row,
        **sums,
        top_api=top.top_api,
        top_api_ns_per_second=top.top_api_ns_per_second,
        top_api_p99_ns=top.top_api_p99_ns,
        gpu_memory_bytes=sum(memory) if memory else None,
        gpus=tuple(sorted({index for some in gpus for index in some})) if gpus else None,
    )


def _sum(figures: Sequence[float | None]) -> float | None:
    """Of what is known; None where nothing is."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None
