"""Sums that go to the end of a file, so that who opens it need not add it up, in as much room as there is.

A recorder may run for days beside a shell that forks hundreds of times a second. So no facts are kept here,
which are in the file anyway, and sums that would not fit there are given up: readers fall back to summing the
records.
"""

from __future__ import annotations

from typing import Any, Final

from gputop.engine.callsums import CallSums
from gputop.engine.calltable import CallTable, Totals
from gputop.engine.tally import ADDED, Tally
from probes.arrays import distinct
from probes.samples import told
from probes.schema import Records, join
from probes.source import FILES, GPUS, Item, Sample
from replay.coding.file_format import MAX_SAMPLE_BYTES

_GATHERED: Final = 4096  # records: adding up a few takes as long as adding up thousands
_MOST_DENSE: Final = 512  # rows of calls, 5 MB, before they are packed
_FEW_PROCESSES: Final = 64


class FileSums:
    """Adds up what is written; see ``replay.writer.Sums``."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._tally: Tally | None = Tally()
        self._calls = CallSums()
        self._waiting: list[Records] = []
        self._rows = 0

    def take(self, item: Item) -> None:
        """Takes one item in; an array may be reused by the caller afterwards."""
        if self._tally is None:
            return
        if not isinstance(item, Sample):
            self._waiting.append(item.copy())
            self._rows += len(item)
            if self._rows >= _GATHERED:
                self._add_up(self._tally)
        elif item.kind == GPUS:
            self._tally.take(item)  # adds to no sum of records
        elif item.kind in ADDED:
            self._add_up(self._tally)
            self._tally.take(item)
        elif (files := told(item, FILES)) is not None:
            self._add_up(self._tally)
            self._tally.disk.tell(item.time_ns, files)

    def told(self) -> dict[str, Any] | None:
        """The sums, as plain data; None when they are more than fits into a file."""
        if self._tally is not None:
            self._add_up(self._tally)
        if self._tally is None:
            return None
        self._pack(self._tally)
        return {**self._tally.told(), **self._calls.told()}

    def _add_up(self, tally: Tally) -> None:
        if self._waiting:
            gathered = join(self._waiting)
            self._waiting, self._rows = [], 0
            many = (
                len(distinct(gathered["pid"])) > _FEW_PROCESSES
            )  # then most records have a row of their own
            at_once = _MOST_DENSE // 2 if many else len(gathered)
            for start in range(0, len(gathered), at_once):
                tally.take(gathered[start : start + at_once])
                if tally.table.rows > _MOST_DENSE:
                    self._pack(tally)
        if tally.size_bytes + self._calls.size_bytes > MAX_SAMPLE_BYTES:
            self._tally, self._calls = None, CallSums()

    def _pack(self, tally: Tally) -> None:
        self._calls.absorb(tally.table, tally.totals)
        tally.table, tally.totals = CallTable(), Totals.zeros(0)
