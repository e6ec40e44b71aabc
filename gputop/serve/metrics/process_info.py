"""Metadata of counted processes and of GPUs, for metrics."""

from __future__ import annotations

from gputop.engine.gpus.gpu_processes import summed_use
from gputop.engine.gpus.nvml_rows import usage
from gputop.engine.host_figures import HostWindow
from probes.samples import ProcessData, listed_gpus, merged, process_data, sample_data
from probes.source import GPUS, STALE_NS, Item, Sample


class People:
    """Consumes items; other threads read ``known`` and ``uuids``, which are replaced and never changed."""

    def __init__(self) -> None:
        self.known: dict[int, ProcessData] = {}  # facts by process
        self.uuids: dict[int, str] = {}  # UUIDs of GPUs by NVML's index
        self._next: dict[int, ProcessData] = {}
        self._gpus: Sample | None = None
        self._host = HostWindow()

    def consume(self, item: Item) -> None:
        if (gpus := sample_data(item, GPUS)) is not None:
            assert isinstance(item, Sample)
            self._gpus = item
            rows = gpus.get("gpus", [])
            self.uuids = {int(row["index"]): str(row.get("uuid", "")) for row in rows if "index" in row}
        elif isinstance(item, Sample) and (data := process_data(item)) is not None and data.get("watched"):
            self._next[data["pid"]] = merged(self._next.get(data["pid"]), data)
        elif isinstance(item, Sample):
            self._host.consume(item)

    def figures(self, now_ns: int) -> dict[int, dict[str, int]]:
        """Return the known figures of each counted process, by their names in frames."""
        found: dict[int, dict[str, int]] = {pid: {} for pid in self.known}
        for pid, size in self._host.resident(now_ns).items():
            if pid in found:
                found[pid]["rss_bytes"] = size
        if self._gpus is not None and now_ns - self._gpus.time_ns <= STALE_NS:
            rows = listed_gpus(self._gpus)
            held, use = usage(self._gpus) or {}, summed_use(rows)
            for pid, figures in found.items():
                if pid in held:
                    figures["gpu_memory_bytes"] = sum(held[pid].values())
                    known = zip(("sm_percent", "memory_percent"), use.get(pid, (None, None)), strict=True)
                    figures |= {key: value for key, value in known if value is not None}
        return found

    def forget(self, counted: set[int]) -> None:
        """At a mark: drop processes that are not counted, and publish the facts of the others."""
        self._next = {pid: data for pid, data in self._next.items() if pid in counted}
        self.known = dict(self._next)
