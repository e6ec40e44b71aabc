"""The list of processes: filtered, by GPU, grouped or as a tree, with one that is followed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from gputop.engine.frame import Frame, ProcessRow
from gputop.format import escape_text
from gputop.ui.model.listing.filter import Filter
from gputop.ui.model.listing.process_table import belongs, container_id, job, rank
from gputop.ui.model.listing.tree import Tree, ancestors, parents_of, tree_of
from gputop.ui.model.look import Glyphs, Span
from gputop.ui.model.table import Context, Table

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
    """Return the next property to group by that any process has, "" after the last."""
    keys = list(GROUPS)
    for key in keys[keys.index(now) + 1 if now else 0 :]:
        if any(GROUPS[key](row) for row in rows):
            return key
    return ""


def parents_by(rows: Sequence[ProcessRow], key: str) -> dict[int, int]:
    """Return the oldest process of its group for each other process."""
    first: dict[str, int] = {}
    parents: dict[int, int] = {}
    for row in sorted(rows, key=lambda row: (row.start_ns, row.pid)):
        group = GROUPS[key](row)
        if not group:
            continue
        if group in first:
            parents[row.pid] = first[group]
        else:
            first[group] = row.pid
    return parents


def labels(rows: Sequence[ProcessRow], key: str) -> dict[int, str]:
    """Return the group's name by pid."""
    return {row.pid: name for row in rows if (name := GROUPS[key](row))}


class Listing:
    """The user's choices for the list of processes."""

    def __init__(self) -> None:
        self.filter = Filter()  # the filter
        self.gpu: int | None = None  # the index of the only GPU whose processes are listed, None for all
        self.as_tree = False  # True if processes stand below their parents
        self.group = ""  # what they are grouped by, one of ``GROUPS``, or ""
        # the only GPUs whose processes are ever listed (``--gpu``); empty for all
        self.only: frozenset[int] = frozenset()
        # the process that stays selected, listed and in sight, or None
        self.followed: ProcessRow | None = None
        self.tree = Tree()  # the tree shown, empty for a list
        self._unfolded: set[int] = set()
        self._shown = self._all = 0

    def show(self, table: Table[ProcessRow], frame: Frame, *, ascii_only: bool) -> str:
        """Fill a table; return a sentence if the followed process has left the frame, else ""."""
        farewell = self._look_for_followed(frame)
        storms = {storm.pid for storm in frame.storms}
        rows = [row for row in frame.processes if self._listed(row, storms)]
        if self.as_tree and self.filtered:  # with the descendants of processes that pass
            passed, parents = {row.pid for row in rows}, parents_of(frame.processes)
            rows = [
                row
                for row in frame.processes
                if row.pid in passed or not passed.isdisjoint(ancestors(row.pid, parents))
            ]
        self._shown, self._all = len(rows), len(frame.processes)
        if self.as_tree or self.group:
            parents = parents_by(rows, self.group) if self.group else parents_of(rows)
            above = ancestors(self.followed.pid, parents) if self.followed else []
            self.tree = tree_of(
                rows,
                self._unfolded.union(above),
                ascii_only=ascii_only,
                parents=parents,
                labels=labels(rows, self.group) if self.group else None,
            )
        else:
            self.tree = Tree(tuple(rows))
        table.arrange, table.sorted_as = self.tree.arranged, self.tree.sums  # type: ignore[assignment]
        table.held = self.followed is not None
        if self.followed is not None and table.selected != self.followed.pid:
            table.select(self.followed.pid)
        table.update(self.tree.rows, frame.time_ns)
        return farewell

    def _look_for_followed(self, frame: Frame) -> str:
        row = self.followed
        if row is None or any(one.pid == row.pid for one in frame.processes):
            return ""
        self.followed = None
        return f"the followed process {row.pid} {escape_text(row.name)} has ended"

    def _listed(self, row: ProcessRow, storms: set[int]) -> bool:
        if self.followed is not None and row.pid == self.followed.pid:
            return True
        if self.only and self.only.isdisjoint(row.gpus or ()):
            return False
        if self.gpu is not None and self.gpu not in (row.gpus or ()):
            return False
        return self.filter.passes(row, storms)

    @property
    def filtered(self) -> bool:
        """True if some processes may be hidden."""
        return bool(self.filter.text) or self.gpu is not None

    def clear(self) -> None:
        self.filter, self.gpu = Filter(), None

    def next_gpu(self, frame: Frame) -> None:
        """Go from all GPUs to the first, the second and so on, then back to all."""
        known = {gpu.index for gpu in frame.gpus}.union(*(row.gpus or () for row in frame.processes))
        later = sorted(index for index in known if self.gpu is None or index > self.gpu)
        self.gpu = later[0] if later else None

    def fold(self, table: Table[ProcessRow]) -> bool:
        """Fold or unfold the branch of the selected process; return False if it is in none."""
        row = table.selected_row
        if row is None:
            return False
        if row.pid in self._unfolded:
            self._unfolded.discard(row.pid)
        elif row.pid in self.tree.members:
            self._unfolded.add(row.pid)
        elif row.pid in self.tree.parents:
            parent = self.tree.parents[row.pid]
            self._unfolded.discard(parent)
            table.select(parent)
        else:
            return False
        return True

    def next_group(self, frame: Frame) -> None:
        """Group by the next property that any process has, after the last one by none."""
        self.group = next_group(frame.processes, self.group)
        self.as_tree = False

    def toggle_tree(self, table: Table[ProcessRow]) -> None:
        """Toggle list and tree; the cursor goes to the folded branch of its process."""
        self.as_tree, self.group = not self.as_tree, ""
        row = table.selected_row
        if self.as_tree and row is not None and self.followed is None:
            above = ancestors(row.pid, parents_of(table.rows))
            folded = [pid for pid in above if pid not in self._unfolded]
            if folded and table.chosen:
                table.select(folded[-1])

    def title(self, glyphs: Glyphs) -> list[Span]:
        """Return the title: the number of processes, then the choices."""
        count = f" {self._shown} of {self._all}" if self.filtered else f" {self._all}"
        spans: list[Span] = [(count, "dim")]
        if self.as_tree:
            spans.append(("  tree", "chrome"))
        if self.group:
            spans.append((f"  by {self.group} [G]", "chrome"))
        if self.only:
            spans.append((f"  --gpu {','.join(map(str, sorted(self.only)))}", "chrome"))
        if self.gpu is not None:
            spans.append((f"  GPU {self.gpu} [g]", "chrome"))
        if self.filter.text:
            slow = " takes too long" if self.filter.slow else ""
            shown = glyphs.shown(self.filter.text)
            spans.append((f"  filter {shown}{slow} [/]", "chrome"))
        if self.followed is not None:
            spans.append((f"  following {self.followed.pid} [f]", "chrome"))
        return spans

    def context(self, context: Context) -> Context:
        """Return the context of the cells with the tree's leads, and with storms within folded branches."""
        storms = dict(context.storms)
        for pid, members in self.tree.members.items():
            stormy = next((storms[member] for member in members if member in storms), None)
            if stormy:
                storms[pid] = stormy
        return replace(context, storms=storms, leads=self.tree.leads)

    def empty(self, frame: Frame) -> tuple[str, ...]:
        """Return why all processes are hidden, or ()."""
        if not frame.processes or not (self.filtered or self.only):
            return ()
        by = [
            f"filter {escape_text(self.filter.text)}" if self.filter.text else "",
            f"GPU {self.gpu}" if self.gpu is not None else "",
            f"--gpu {','.join(map(str, sorted(self.only)))}" if self.only else "",
        ]
        text = f"No process matches {' and '.join(filter(None, by))} ({len(frame.processes)} hidden)."
        if not self.filtered:
            return text, "Start gputop without --gpu to see them."
        keys = "[/] another filter, [Esc] all" if self.filter.text else "[g] the next GPU, [Esc] all"
        return text, keys + (" of these GPUs" if self.only else "")
