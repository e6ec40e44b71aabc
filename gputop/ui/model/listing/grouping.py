"""Processes by what they have in common, in place of a tree: each group below the first of its processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gputop.engine.frame import ProcessRow
from gputop.ui.model.listing.process_table import belongs, container_id, job, rank

# what processes can be grouped by, in the order of the key
GROUPS: Final[dict[str, Callable[[ProcessRow], str]]] = {
    "user": lambda row: row.user,
    "container": container_id,
    "pod": lambda row: belongs(row, "pod"),
    "job": job,
    "rank": lambda row: " ".join(filter(None, (job(row), rank(row)))) if rank(row) else "",
    "gpu": lambda row: f"GPU {','.join(map(str, row.gpus))}" if row.gpus else "",
}


def next_group(rows: Sequence[ProcessRow], now: str) -> str:
    """What to group by behind this: something that some process has; "" behind the last."""
    keys = list(GROUPS)
    for key in keys[keys.index(now) + 1 if now else 0 :]:
        if any(GROUPS[key](row) for row in rows):
            return key
    return ""


def parents_by(rows: Sequence[ProcessRow], key: str) -> dict[int, int]:
    """The parent of each process that is not the first of its group, which is the one that is oldest."""
    first: dict[str, int] = {}
    parents: dict[int, int] = {}
    for row in sorted(rows, key=lambda row: (row.start_ns, row.pid)):
        group = GROUPS[key](row)
        if not group:
            continue  # what belongs to nothing stands for itself
        if group in first:
            parents[row.pid] = first[group]
        else:
            first[group] = row.pid
    return parents


def labels(rows: Sequence[ProcessRow], key: str) -> dict[int, str]:
    """By pid, the group's name, of each process that is in one."""
    return {row.pid: name for row in rows if (name := GROUPS[key](row))}
