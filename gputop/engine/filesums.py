"""Sums that go to the end of a file, so that who opens it need not add it up, in as much room as there is.

A recorder may run for days beside a shell that forks hundreds of times a second. So no facts are kept here,
which are in the file anyway, and sums that would not fit there are given up: readers fall back to summing the
records.
"""

from __future__ import annotations

from typing import Any, Final

from gputop.engine.tally import ADDED, Tally
from probes.samples import told
from probes.schema import Records, join
from probes.source import FILES, GPUS, Item, Sample
from replay.coding.file_format import MAX_SAMPLE_BYTES

_GATHERED: Final = 4096  # records: adding up a few takes as long as adding up thousands


class FileSums:
    """Adds up what is written; see ``replay.writer.Sums``."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._tally: Tally | None = Tally()
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
        return None if self._tally is None else self._tally.told()

    def _add_up(self, tally: Tally) -> None:
        if self._waiting:
            tally.take(join(self._waiting))
            self._waiting, self._rows = [], 0
        if tally.size_bytes > MAX_SAMPLE_BYTES:
            self._tally = None
