"""Names for a recording that is shown to others: unwatched processes become ``other-1``, ``other-2``, …

A process is watched when the probes reported a birth, an exec, a call or a switch of it, or when a
``process`` sample reports it. All others are known in the file by number only: no thread or command name,
no user, no path. Of watched ones the names of processes and threads stay, and no command line and no user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from probes.activities import activity_rows, activity_sample, python_place
from probes.arrays import PIDS, distinct, table
from probes.code.source_files import without_folders
from probes.schema import ALIASED, ExitFlag, Kind, Records
from probes.source import (
    ACTIVITY,
    FILES,
    FRAMES,
    HOLE,
    MARK,
    MARKER,
    NAMES,
    NOTE,
    OPEN,
    PROBLEM,
    PROCESS,
    Sample,
)

_EVIDENCE: Final = np.zeros(256, bool)
_EVIDENCE[[Kind.FORK, Kind.EXEC, Kind.JOIN, Kind.CALL, Kind.OFFCPU]] = True

# Text about a process that identifies neither its user nor its work.
_HARMLESS: Final = frozenset({"type", "kind", "state", "gpu", "uuid", "layer", "mode"})
# Keys whose text becomes the new name; all other text of a process that is not watched is emptied.
_NAME_KEYS: Final = frozenset({"name", "comm", "process", "process_name", "thread", "label"})
_USER_KEYS: Final = frozenset({"uid", "gid", "euid", "loginuid"})
_NOBODYS: Final = frozenset(
    {"command", "cmdline", "user", "pod", "namespace", "pod_container", "job_id", "job_step"}
)  # text that is kept of no process
# Variables of CUDA, and their parts that are no value of CUDA's but a text chosen by a user.
_VARIABLES: Final = {
    "cuda_visible_devices": re.compile(
        r"(?<![^,])(?!\s{0,8}(?:-?\d{1,9}|(?:GPU|MIG)-[\da-fA-F/-]*|(?:MIG-)?GPU-[\da-fA-F/-]*)?\s{0,8}(?:,|\Z))[^,]+"
    ),
    "cuda_device_order": re.compile(r"\A(?!(?:FASTEST_FIRST|PCI_BUS_ID)?\Z).+\Z", re.DOTALL),
}
# Where a number as a key of a map is that of a thread or process; elsewhere it counts GPUs or API rows.
_NUMBERED_KINDS: Final = frozenset({PROCESS, NAMES, OPEN})
_NUMBERED_KEYS: Final = frozenset({"processes", "threads"})
_SENTENCES: Final = frozenset({NOTE, PROBLEM, MARKER, HOLE})
_NVIDIA: Final = "device:/dev/nvidia"
_PSEUDONYM: Final = re.compile(r"other-[0-9]{1,9}")
_NUMBER: Final = re.compile(r"[0-9]{1,10}\Z")
# An absolute path, except its last part: a library's own name says which one it is, its folder whose. Folders
# may have any name; only one that ends with a space counts as the end of the path. It may stand
# right behind a compiler's option, or be the path of an address.
_FOLDERS: Final = re.compile(r"(?:(?<![\w.])|(?<=\s-[A-Za-z])|(?<=\A-[A-Za-z]))/(?:[^/]*[^/\s]/)+")
_HEADER_SECRETS: Final = re.compile(
    r"(host|node)_?name|host|node|domain|fqdn|(sudo_?)?user(_?name)?|login|owner|argv?|args|cmdline"
    r"|command(_?line)?|cwd|home|path|directory|machine_?id|boot_?id|serial|env(ironment)?|ip|address",
    re.IGNORECASE,
)


def private_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """The header without the host's and the user's name and the command line, at any depth."""
    cleaned: dict[str, Any] = _without_secrets(header)
    cleaned["private"] = True
    return cleaned


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(inner) for inner in value]
    return _FOLDERS.sub("", value) if isinstance(value, str) else value


def _without_source_folders(stack: Any) -> list[Any]:
    """The frames of a stack without folders that identify their owner."""
    frames = stack if isinstance(stack, list | tuple) else ()
    return [
        [without_folders(str(frame[0])), *frame[1:]]
        for frame in frames
        if isinstance(frame, list | tuple) and frame
    ]


def _texts(column: Any) -> list[str]:
    return [text if isinstance(text, str) else "" for text in column] if isinstance(column, list) else []


def _without_path(what: str) -> str:
    """The kind of an open file; which of NVIDIA's devices it is says nothing about a person."""
    return what if what.startswith((_NVIDIA, "anon:", "socket:")) else what.partition(":")[0]


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _without_secrets(inner)
            for key, inner in value.items()
            if not (isinstance(key, str) and _HEADER_SECRETS.fullmatch(key))
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(inner) for inner in value]
    return value


MOST_NAMES = 1 << 16  # of strangers at a time: on a busy machine there are ever more


class Disguise:
    """Replaces names in items; the same process has the same new name throughout one file."""

    def __init__(self) -> None:
        self._watched = table(np.bool_)
        self.names: dict[int, str] = {}  # the one longest unheard of first
        self._named = 0
        self._process_of = table(np.int32)  # by thread id
        # the same of other machines in a merged recording, whose numbers are larger
        self._far_watched: set[int] = set()
        self._far_process_of: dict[int, int] = {}
        self._ended: set[int] = set()  # watched until the next mark, for samples that are on their way

    def records(self, records: Records) -> Records:
        """The batch with other names in NAME records of processes that are not watched.

        Returns:
            ``records`` itself when nothing had to be replaced, else a copy.
        """
        if not len(records):
            return records
        self._learn(records)
        rows = np.flatnonzero(records["kind"] == Kind.NAME)
        if not len(rows):
            return records
        copy: Records = records.copy()
        names = copy.view(ALIASED)["comm"]
        for row in rows.tolist():
            pid = int(records["pid"][row])
            if not self.is_watched(pid) and not _is_pseudonym(names[row].decode("utf-8", "replace")):
                names[row] = self.name(pid).encode()
        return copy

    def sample(self, sample: Sample) -> Sample:
        """The sample with other names, and no other text, for processes that are not watched."""
        if sample.kind == PROCESS:
            self._learn_processes(sample.data)
        elif sample.kind == MARK:
            self._bury()
        if sample.kind == ACTIVITY:
            return self._activities(sample)
        data = self._clean(sample.data, None, sample.kind in _NUMBERED_KINDS)
        if sample.kind in _SENTENCES:
            data = _without_folders(data)
        elif sample.kind == PROCESS and "inside_refused" in data:  # a sentence of the program's
            data["inside_refused"] = _without_folders(data["inside_refused"])
        elif sample.kind == FRAMES:
            data = {**data, "frames": [_without_source_folders(stack) for stack in data.get("frames", ())]}
        elif sample.kind == FILES:
            data = {**data, "what": [_without_path(what) for what in _texts(data.get("what"))]}
        return Sample(sample.kind, sample.time_ns, data)

    def is_watched(self, pid: int) -> bool:
        """True if this process is watched as far as is known by now."""
        return bool(self._watched[pid]) if 0 <= pid < PIDS else pid in self._far_watched

    def _watch(self, pid: int, *, watched: bool) -> None:
        if 0 <= pid < PIDS:
            self._watched[pid] = watched
        elif watched:
            self._far_watched.add(pid)
        else:
            self._far_watched.discard(pid)

    def name(self, pid: int) -> str:
        """The name in the file of a process that is not watched."""
        known = self.names.pop(pid, None)
        if known is None:
            self._named += 1
            known = f"other-{self._named}"
            if len(self.names) >= MOST_NAMES:
                del self.names[next(iter(self.names))]
        self.names[pid] = known
        return known

    def _learn(self, records: Records) -> None:
        kinds, pids, tids = records["kind"], records["pid"], records["tid"]
        inside = (pids < PIDS) & (tids < PIDS)
        evidence = _EVIDENCE[kinds] & inside
        known = evidence | ((kinds == Kind.NAME) & inside)
        self._process_of[tids[known]] = pids[known]
        self._watched[pids[evidence]] = True
        if not inside.all():
            self._learn_far(records, ~inside)
            evidence = _EVIDENCE[kinds]
        # The number of a process that ended may go to a stranger.
        if self._ended:
            self._ended -= set(distinct(pids[evidence]).tolist())
        gone = (kinds == Kind.EXIT) & (records["flags"] & ExitFlag.GROUP_DEAD != 0)
        last_exit = {int(pids[row]): row for row in np.flatnonzero(gone).tolist()}
        for pid, row in last_exit.items():
            if not (evidence[row:] & (pids[row:] == pid)).any():
                self._ended.add(pid)

    def _learn_far(self, records: Records, far: npt.NDArray[np.bool_]) -> None:
        seen = _EVIDENCE[records["kind"]]
        self._far_watched.update(distinct(records["pid"][far & seen]).tolist())
        known = far & (seen | (records["kind"] == Kind.NAME))
        tids, pids = records["tid"][known].tolist(), records["pid"][known].tolist()
        self._far_process_of.update(zip(tids, pids, strict=True))  # a number is that of its last thread

    def _bury(self) -> None:
        for pid in self._ended:
            self._watch(pid, watched=False)
        self._ended.clear()

    def _learn_processes(self, data: Any) -> None:
        if isinstance(data, Mapping):
            pid = _number(data.get("pid"))
            if data.get("watched") is True and pid is not None:
                self._watch(pid, watched=True)
                if data.get("exited_ns") is not None:
                    self._ended.add(pid)
            for key, inner in data.items():
                number = _number(key)
                if isinstance(inner, Mapping) and number is not None and "pid" not in inner:
                    self._learn_processes({"pid": number, "watched": inner.get("watched")})
                else:
                    self._learn_processes(inner)
        elif isinstance(data, list | tuple):
            for inner in data:
                self._learn_processes(inner)

    def _clean(self, value: Any, stranger: int | None, numbered: bool) -> Any:
        """Copy of plain data.

        Args:
            value: any plain data.
            stranger: the process that is not watched it is about, if it is about one.
            numbered: numbers as keys of maps are those of threads or processes.
        """
        if isinstance(value, Mapping):
            return self._clean_map(value, stranger, numbered)
        if isinstance(value, list | tuple):
            return [self._clean(inner, stranger, numbered) for inner in value]
        if isinstance(value, str | bytes) and stranger is not None:
            return type(value)()
        return value

    def _clean_map(self, value: Mapping[Any, Any], stranger: int | None, numbered: bool) -> dict[Any, Any]:
        pids, tids = value.get("pid"), value.get("tid")
        if isinstance(pids, list | tuple) or isinstance(tids, list | tuple):
            return self._clean_columns(value, stranger, numbered)
        about = self._whom(pids, tids, stranger)
        result: dict[Any, Any] = {}
        for key, inner in value.items():
            whom = about
            if numbered and _number(key) is not None:
                whom = self._whom(None, key, about)
            result[key] = self._cell(key, inner, whom, numbered or key in _NUMBERED_KEYS)
        return result

    def _clean_columns(
        self, value: Mapping[Any, Any], stranger: int | None, numbered: bool
    ) -> dict[Any, Any]:
        """A table whose columns are lists; ``pid`` or ``tid`` names a row's process or thread."""
        pids, tids = (list(value.get(key) or ()) for key in ("pid", "tid"))
        rows = [self._whom(pid, tid, stranger) for pid, tid in zip_longest(pids, tids)]
        anybody = next((row for row in rows if row is not None), stranger)
        result: dict[Any, Any] = {}
        for key, column in value.items():
            if isinstance(column, list | tuple) and len(column) == len(rows):
                cells = zip(column, rows, strict=True)
                result[key] = [self._cell(key, cell, whom, numbered) for cell, whom in cells]
            else:
                result[key] = self._cell(key, column, anybody, numbered)
        return result

    def _activities(self, sample: Sample) -> Sample:
        """Rows of strangers keep their kind and lose their names."""
        rows, texts = activity_rows(sample.data)
        pids = distinct(rows["pid"])
        strangers = [pid for pid in pids.tolist() if pid >= 0 and not self.is_watched(pid)]
        hidden = np.isin(rows["pid"], strangers)
        for name in ("name", "detail"):
            rows[name][hidden] = len(texts)
        kept = [_without_place(text) for text in texts]
        return activity_sample(rows, [*kept, ""], sample.time_ns)

    def _cell(self, key: Any, value: Any, whom: int | None, numbered: bool) -> Any:
        if isinstance(value, str):
            value = value.partition(" ")[0] if key == "container" else value  # its kind, not its name
            value = _VARIABLES[key].sub("?", value) if key in _VARIABLES else value
            return "" if key in _NOBODYS else self._text(key, value, whom)
        if key in _USER_KEYS:
            return None
        return self._clean(value, whom, numbered)

    def _text(self, key: Any, text: str, stranger: int | None) -> str:
        if stranger is None or key in _HARMLESS or _is_pseudonym(text):
            return text
        return self.name(stranger) if key in _NAME_KEYS or _number(key) is not None else ""

    def _whom(self, pid: Any, tid: Any, otherwise: int | None) -> int | None:
        """The unwatched process that these numbers name; None for a watched one."""
        number, thread = _number(pid), _number(tid)
        if number is None and thread is not None:
            near = 0 <= thread < PIDS
            number = int(self._process_of[thread]) if near else self._far_process_of.get(thread, 0)
            number = number or thread
        if number is None:
            return otherwise
        return None if self.is_watched(number) else number


def _is_pseudonym(text: str) -> bool:
    """True if a stranger has the name from this module already: it is kept in a copy of the recording."""
    return _PSEUDONYM.fullmatch(text) is not None


def _without_place(text: str) -> str:
    """The name of an activity without personal folders."""
    place = python_place(text)
    return _FOLDERS.sub("", text) if place is None else f"{without_folders(place[0])}({place[1]}): {place[2]}"


def _number(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _NUMBER.match(value):
        return int(value)
    return None
