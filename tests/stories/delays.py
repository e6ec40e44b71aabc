"""How long the processes under another one wait for a CPU, by the kernel's count, read from outside."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType

from probes.proc.procfs import descendants
from tests.bench.processes import is_gputop

_EVERY_S = 0.5


class Delays:
    """While it is entered, a thread reads them twice a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, dict[str, int]] = {}  # of each process the delay of each thread, in ns
        self._times: dict[int, tuple[float, float]] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Delays:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    @property
    def share(self) -> float:
        """Of the process that waited longest, its threads together: of the time that it was seen."""
        shares = [0.0]
        for pid, (first, last) in list(self._times.items()):
            if last > first:
                shares.append(sum(list(self._seen[pid].values())) / 1e9 / (last - first))
        return max(shares)

    def _read(self) -> None:
        while not self._done.wait(_EVERY_S):
            for pid in descendants((self._pid,)):
                try:
                    self._look(pid)
                except OSError:
                    continue  # it has ended

    def _look(self, pid: int) -> None:
        if is_gputop(pid):
            return
        now = time.monotonic()
        for task in Path(f"/proc/{pid}/task").iterdir():
            self._seen.setdefault(pid, {})[task.name] = int((task / "schedstat").read_text().split()[1])
        self._times[pid] = (self._times.get(pid, (now, now))[0], now)
