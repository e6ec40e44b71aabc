"""Who processes are and which GPUs there are, for metrics: facts of those that are counted, of no others."""

from __future__ import annotations

from probes.samples import ProcessData, merged, process_data, told
from probes.source import GPUS, Item, Sample


class People:
    """Takes items in; others read ``known`` and ``uuids``, which are replaced and never changed.

    Attributes:
        known: Facts by process.
        uuids: Of GPUs by NVML's index.
    """

    def __init__(self) -> None:
        """Start with nobody."""
        self.known: dict[int, ProcessData] = {}
        self.uuids: dict[int, str] = {}
        self._next: dict[int, ProcessData] = {}

    def take(self, item: Item) -> None:
        """Takes one item in."""
        if (gpus := told(item, GPUS)) is not None:
            rows = gpus.get("gpus", [])
            self.uuids = {int(row["index"]): str(row.get("uuid", "")) for row in rows if "index" in row}
        elif isinstance(item, Sample) and (data := process_data(item)) is not None and data.get("watched"):
            self._next[data["pid"]] = merged(self._next.get(data["pid"]), data)

    def forget(self, counted: set[int]) -> None:
        """At a mark: keeps who is counted; what it learnt is told from now on."""
        self._next = {pid: data for pid, data in self._next.items() if pid in counted}
        self.known = dict(self._next)
