"""The state at a moment: the facts of all samples before it, folded in one way, live and for a seek."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, Final, TypeVar

from probes.samples import ProcessData, merged, process_data, sample_data, text_of
from probes.source import APIS, CLIENT, NAMES, NOTE, PROBLEM, Sample
from probes.thread_names import ThreadNames

_NOTES: Final = 32  # readers show fewer
MOST_ROWS: Final = 65_536  # beyond it the oldest are forgotten
_MOST_PROBLEMS: Final = 256
Key = TypeVar("Key")
Value = TypeVar("Value")


class Known:
    """Holds facts. Its owner decides which ended processes are dropped."""

    def __init__(self) -> None:
        # the watched processes' facts, all samples merged, by process number
        self.processes: dict[int, ProcessData] = {}
        self.clients: dict[int, Sample] = {}  # users of a GPU that are not watched, the newest sample of each
        self.names = ThreadNames()  # threads' (process, name) by thread id
        # subject -> the newest sample; one without text ends the problem
        self.problems: dict[str, Sample] = {}
        self.notes: deque[Sample] = deque(maxlen=_NOTES)  # the newest ones
        self.apis: Sample | None = None  # the API table, if it was reported

    def copy(self) -> Known:
        """An independent copy."""
        other = Known()
        other.names = self.names.copy()
        other._absorb_others(self)
        return other

    def consume(self, sample: Sample) -> None:
        """Consumes a sample; kinds that are not held here and damaged ones are ignored."""
        if (process := process_data(sample)) is not None:
            self.merge_process(process)
        elif (client := sample_data(sample, CLIENT)) is not None:
            if isinstance(client.get("pid"), int):
                self.clients[client["pid"]] = sample
                shorten(self.clients)
        elif (names := sample_data(sample, NAMES)) is not None:
            rows = zip(names.get("tid", ()), names.get("pid", ()), names.get("name", ()), strict=False)
            for tid, pid, name in rows:
                self.names[int(tid)] = (int(pid), str(name))
            self.names.shorten()
        elif sample_data(sample, APIS) is not None:
            self.apis = sample
        elif sample_data(sample, NOTE) is not None:
            self.notes.append(sample)
        elif sample_data(sample, PROBLEM) is not None:
            self._consume_problem(sample)

    def merge_process(self, later: ProcessData) -> ProcessData:
        """Merges facts of a process; returns all that is known of it now."""
        known = self.processes[later["pid"]] = merged(self.processes.get(later["pid"]), later)
        return known

    def _consume_problem(self, sample: Sample) -> None:
        about = str(sample.data.get("about", "") or text_of(sample))
        before = self.problems.get(about)
        if before is not None and not text_of(before):
            del self.problems[about]  # it is news again
        self.problems[about] = sample
        # the first are about parts that do not work at all, the last are news
        if len(self.problems) > 2 * _MOST_PROBLEMS:
            for name in list(self.problems)[_MOST_PROBLEMS // 2 : -_MOST_PROBLEMS // 2]:
                del self.problems[name]

    def absorb(self, later: Known) -> None:
        """Merges the facts recorded after these."""
        self.names.update(later.names)
        self.names.shorten()
        self._absorb_others(later)

    def _absorb_others(self, later: Known) -> None:
        for data in later.processes.values():
            self.merge_process(data)
        self.clients.update(later.clients)
        for sample in later.problems.values():
            self._consume_problem(sample)
        self.notes.extend(later.notes)
        self.apis = later.apis or self.apis

    def forget(self, pids: Collection[int]) -> None:
        """Drop these processes and the names of their threads."""
        for pid in pids:
            del self.processes[pid]
        self.names.forget(pids)


def shorten(rows: dict[Key, Any]) -> None:
    """Drop the oldest rows when there are twice as many as are kept."""
    if len(rows) > 2 * MOST_ROWS:
        for key in list(rows)[:-MOST_ROWS]:
            del rows[key]
