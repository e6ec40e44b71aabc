"""Processes below their parents; a folded branch is a row with sums."""

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
    """A process table as a tree."""

    rows: tuple[ProcessRow, ...] = ()  # the visible rows; the row of a folded branch has its sums
    parents: Mapping[int, int] = field(default_factory=dict)  # the parent of each row, if it is among them
    # by pid, the sums of each branch, folded or not, by which it is sorted
    sums: Mapping[int, ProcessRow] = field(default_factory=dict)
    leads: Mapping[int, str] = field(default_factory=dict)  # by pid, the text before the name
    # by pid of a folded branch, all pids in it
    members: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def arranged(self, order: Iterable[Hashable]) -> list[Hashable]:
        """Return an order of pids with each one below its parent, otherwise unchanged."""
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
    """Return the parents that are among the rows; cycles, as in a forged file, are cut."""
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
    """Return a process's ancestors, nearest first."""
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
    """Return a tree of processes.

    Args:
        rows: The processes.
        unfolded: Pids of unfolded branches.
        ascii_only: Draw with ASCII.
        parents: In place of the processes' parents.
        labels: By pid, a name of its branch, shown before the process's name.
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
    """Return a process with the figures of its descendants added.

    The top call is that of the process with most time in one. BLK%, calls and threads are its own: shares of
    different threads' time have no sum.
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
    """Return the sum of the known figures; None without any."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None
