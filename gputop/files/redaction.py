"""Redacted copies of recordings: without names of host, users, paths, command lines and unobserved processes.

Each becomes a pseudonym (``user-1``, ``/folder-2/file-3.py``), the same throughout the file. Times, numbers,
calls, functions and names of observed processes and threads stay, and so do all findings.
"""

from __future__ import annotations

import platform
import pwd
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import Session, reader_of
from gputop.errors import GputopError
from gputop.files.output_files import new_session
from gputop.files.whole import damage_of
from probes.activities import activity_rows, activity_sample, python_place
from probes.code.source_files import direct, is_library, without_folders
from probes.schema import ALIASED, Kind, Records
from probes.source import ACTIVITY, APIS, CLIENT, FRAMES, NAMES, PROCESS, Item, Sample
from replay.private import Disguise, private_header
from replay.reader import SessionReader

# system folders, which name no person
_SYSTEM: Final = re.compile(
    r"(?:/usr)?/(?:s?bin|lib(?:32|64|x32)?)/|/usr/local/(?:cuda|nvidia|lib)[^/]*/|/opt/(?:nvidia|intel|rocm)[^/]*/"
    r"|/(?:dev|proc|sys)/"
)
# an absolute path in a text, also right behind a compiler's option; its parts may hold anything but what ends
# a word there, and of that what stands within a name: /home/o'neil/x, /data/a,b/c
_PART: Final = r"""(?:[^\s/'"`,;:()\[\]]|[,;:()\[\]'"](?=[^\W\d][^\s/]{0,254}/))+"""
_PATH: Final = re.compile(rf"(?:(?<![\w./<])|(?<=\s-[A-Za-z])|(?<=\A-[A-Za-z]))/+(?:{_PART}/+)*{_PART}")
# file:///home/x, s3://data/x
_ADDRESS: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,30}:)//([^\s'\"`<>]+)")
_SUFFIX: Final = re.compile(
    r"\.(?:py|pyc|so|cu|cpp|cc|c|h|ipynb|sh|json|ya?ml|toml|pt|db|sqlite|msgpack)(?:\.\d+)*\Z"
)
_SHORTEST: Final = 3  # characters: shorter names are parts of too many words
_NOBODYS: Final = frozenset({"__main__", "__init__", "python", "python3", "<string>", "<stdin>"})
_PERSONS: Final = 1000  # user ids from here on are those of people
OWN_WORDS: Final = frozenset({"kind", "what", "layer", "type", "state"})  # keys of gputop's own words
# pseudonyms in a recording that is already redacted, or was recorded with --private
_PSEUDONYM: Final = re.compile(r"(host|user|command|container|pod|other|folder|file)-(\d+)(?:\.\w+)*")


class Redactor:
    """Replaces names in items by pseudonyms, and remembers them."""

    def __init__(self) -> None:
        # of names that must not remain anywhere: host, users, command lines, containers, other processes
        self.pseudonyms: dict[str, str] = {}
        self._files: dict[str, str] = {}  # names of files, with their endings
        self._folders: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._watched: dict[int, str] = {}
        self._own: set[str] = set()  # names of watched processes and their threads: they stay
        self._disguise = Disguise()
        self._patterns: dict[bool, re.Pattern[str]] = {}

    @property
    def replaced(self) -> int:
        """Number of names with a pseudonym."""
        return len(self.pseudonyms) + len(self._files) + len(self._folders)

    # -- learning ---------------------------------------------------------------------------------

    def learn(self, kind: str, original: str) -> str:
        """Return the pseudonym of a name, which from now on is also replaced in texts."""
        return self._numbered(self.pseudonyms, kind, original) if original else ""

    def _numbered(self, known: dict[str, str], kind: str, original: str, ending: str = "") -> str:
        if kept := _PSEUDONYM.fullmatch(original):
            self._counts[kept[1]] = max(self._counts.get(kept[1], 0), int(kept[2]))
            return original
        if original not in known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            known[original] = f"{kind}-{self._counts[kind]}{ending}"
            self._patterns.clear()
        return known[original]

    def learn_header(self, header: Mapping[str, Any]) -> None:
        """Learn the hosts and the recorded command."""
        machine = header.get("machine")
        for row in (machine, *_parts(header)):
            if isinstance(row, Mapping):
                self.learn("host", str(row.get("host") or ""))
        command = header.get("command")
        words = [str(word) for word in command] if isinstance(command, list | tuple) else []
        for word in words:
            self.text(word)  # its paths
        if len(words) > 1:
            self.learn("command", " ".join(words))

    def begin_again(self) -> None:
        """Start the second pass over all items, which already knows every name."""
        self._disguise = Disguise()

    # -- replacing --------------------------------------------------------------------------------

    def path(self, path: str) -> str:
        """Return a path with pseudonyms; a library keeps its part within the package, system files all of
        it.
        """
        path = direct(path)
        if not path or path.startswith("<") or _SYSTEM.match(path):
            return path
        if is_library(path):
            kept = without_folders(path)
            own = path.removesuffix(kept)
            return (self._folder(own) if own != path else "") + kept
        folder, slash, name = path.rpartition("/")
        return self._folder(folder) + slash + self._file(name)

    def _folder(self, folder: str) -> str:
        parts = folder.split("/")
        return "/".join(self._numbered(self._folders, "folder", part) if part else "" for part in parts)

    def _file(self, name: str) -> str:
        """A file's pseudonym with its suffix, since that is the file's type, and causes depend on it."""
        found = _SUFFIX.search(name)
        ending = found[0] if found else ""
        if name.removesuffix(ending) in _NOBODYS or not name:
            return name
        return self._numbered(self._files, "file", name, ending)

    def text(self, text: str) -> str:
        """Return a text without paths and known names."""
        text = _ADDRESS.sub(lambda found: found[1] + self._folder("//" + found[2]), text)
        return self._known(_PATH.sub(lambda found: self.path(found[0]), text), files=True)

    def _known(self, text: str, *, files: bool) -> str:
        if files not in self._patterns:
            words = {*self.pseudonyms, *(self._files if files else ())}
            longest = sorted(
                (re.escape(word) for word in words if len(word) >= _SHORTEST), key=len, reverse=True
            )
            self._patterns[files] = re.compile(
                rf"(?<!\w)(?:{'|'.join(longest)})(?!\w)" if longest else r"(?!)"
            )
        return self._patterns[files].sub(
            lambda found: self.pseudonyms.get(found[0]) or self._files[found[0]], text
        )

    def header(self, header: Mapping[str, Any]) -> dict[str, Any]:
        self.learn_header(header)
        clean: dict[str, Any] = self.deep(private_header(header))
        machine = header.get("machine")
        if isinstance(machine, Mapping) and machine.get("host"):
            clean["machine"] = {**clean["machine"], "host": self.learn("host", str(machine["host"]))}
        for row, original in zip(_parts(clean), _parts(header), strict=True):
            row["host"] = self.learn("host", str(original.get("host") or "")) or None
        if isinstance(clean.get("totals"), list):  # of a file that was imported
            clean["totals"] = [
                {**row, "process": self._watched.get(row.get("pid"), "")} for row in clean["totals"]
            ]
        return {**clean, "redacted": True}

    def item(self, item: Item) -> Item:
        return self._sample(item) if isinstance(item, Sample) else self._records(item)

    def _records(self, records: Records) -> Records:
        rows = np.flatnonzero(records["kind"] == Kind.NAME)
        if not len(rows):
            return self._disguise.records(records)  # which learns the observed processes
        before = records.copy().view(ALIASED)["comm"][rows].tolist()
        clean: Records = self._disguise.records(records).copy()
        names = clean.view(ALIASED)["comm"]
        for row, one, other in zip(rows.tolist(), before, names[rows].tolist(), strict=True):
            self._learn_name(one.decode("utf-8", "replace"), other.decode("utf-8", "replace"))
            names[row] = self._bytes(other)
        return clean

    def _bytes(self, name: bytes) -> bytes:
        """A thread's name in a record; parts that are not replaced stay to the byte."""
        text = name.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def _learn_name(self, original: str, disguised: str) -> None:
        """Learn an unobserved process's name, which must not remain unless an observed one has it too."""
        if original == disguised:
            self._own.add(original)
            if self.pseudonyms.get(original, "").startswith("other-"):
                del self.pseudonyms[original]
                self._patterns.clear()
        elif original and original not in self._own and original not in self.pseudonyms:
            self.pseudonyms[original] = disguised
            self._patterns.clear()

    def _sample(self, sample: Sample) -> Sample:
        if sample.kind == APIS:
            return sample
        if sample.kind == PROCESS and sample.data.get("watched") is True and sample.data.get("name"):
            self._watched[int(sample.data["pid"])] = str(sample.data["name"])
        clean = self._disguise.sample(sample)
        if sample.kind == ACTIVITY:
            return self._activities(sample, clean)
        data = dict(clean.data)
        if sample.kind == FRAMES:
            data["frames"] = [
                [self._frame(frame) for frame in stack] for stack in sample.data.get("frames", ())
            ]
            return Sample(sample.kind, sample.time_ns, data)
        if sample.kind == NAMES:
            for one, other in zip(sample.data.get("name", ()), data.get("name", ()), strict=False):
                self._learn_name(str(one), str(other))
        if sample.kind in (PROCESS, CLIENT):
            self._learn_name(str(sample.data.get("name", "")), str(data.get("name", "")))
            data |= dict(self._of_process(sample.data))
        return Sample(sample.kind, sample.time_ns, self.deep(data))

    def _activities(self, sample: Sample, disguised: Sample) -> Sample:
        """Names of functions and ranges: a Python function's name contains its file."""
        rows, texts = activity_rows(disguised.data)
        own, _ = activity_rows(sample.data)
        names = [str(text) for text in sample.data["texts"]]
        for name in ("name", "detail"):  # the disguised ones have lost their folders
            known = [texts[place] != "" for place in rows[name].tolist()]
            rows[name] = np.where(known, own[name], len(names))
        rows["what"] = own["what"]
        whats = set(np.unique(own["what"]).tolist())
        clean = [text if place in whats else self._activity(text) for place, text in enumerate(names)]
        return activity_sample(rows, [*clean, ""], sample.time_ns)

    def _activity(self, text: str) -> str:
        place = python_place(text)
        return self.text(text) if place is None else f"{self.path(place[0])}({place[1]}): {place[2]}"

    def _of_process(self, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        self.text(str(data.get("command", "")))  # its paths
        for key in ("user", "command", "container", "pod"):
            if isinstance(data.get(key), str):
                yield key, self.learn(key, data[key])

    def _frame(self, frame: Any) -> list[Any]:
        file, line, function = str(frame[0]), frame[1], str(frame[2])
        new, name = self.path(file), file.rpartition("/")[2]
        if name and new != file:  # a function without a symbol has its file's name
            function = function.replace(name, new.rpartition("/")[2])
        return [new, line, self._known(function, files=False)]

    def deep(self, value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {name: self.deep(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.deep(inner, key) for inner in value]
        return self.text(value) if isinstance(value, str) and key not in OWN_WORDS else value


def _parts(header: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of a merged recording."""
    merged = header.get("merged")
    parts = merged.get("parts") if isinstance(merged, Mapping) else None
    return [row for row in parts if isinstance(row, dict)] if isinstance(parts, list | tuple) else []


def redactor_of_here() -> Redactor:
    """Return a redactor for live recording, which knows this machine's host and users."""
    redactor = Redactor()
    redactor.learn("host", platform.node())
    for user in pwd.getpwall():
        if user.pw_uid == 0 or user.pw_uid >= _PERSONS:
            redactor.learn("user", user.pw_name)
    return redactor


_LEAST = 3  # characters of a name to search for: shorter ones are parts of words


def redact(session: Session, path: str, progress: Progress = SILENT, *, force: bool = False) -> int:
    """Write the redacted copy; return the number of replaced names.

    Args:
        force: Replace an existing file, once the new one is complete.

    Raises:
        GputopError: The recording cannot be read, or the copy not be written, or the copy still held
            a name and was removed.
    """
    reader = reader_of(session)
    redactor = Redactor()
    with understood(session.path):
        redactor.learn_header(session.header)
        items = reader.items()
        for item in progress.through(items, len(reader.marks)):
            redactor.item(item)  # learns the names, which may stand in earlier items too
        redactor.begin_again()
        progress.goes_on("writing")
        with new_session(path, redactor.header(session.header), force=force) as writer:
            for problem in damage_of(session, session.start_ns):
                writer.write(redactor.item(problem))
            for item in reader.items():
                writer.write(redactor.item(item))
            writer.flush()
            _assert_gone(writer.path, redactor)
    return redactor.replaced


def _assert_gone(path: str, redactor: Redactor) -> None:
    """Read the copy again, and raise if it holds a name."""
    names = [re.escape(name) for name in redactor.pseudonyms if len(name) >= _LEAST]
    if not names:
        return
    wanted = re.compile(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)")
    reader = SessionReader(path)
    try:
        for item in reader.items():
            if isinstance(item, Sample) and item.kind != APIS and _holds(item.data, wanted):
                raise GputopError(
                    f"the copy still names something that was to be replaced, in a sample {item.kind!r}: "
                    "the copy was removed; please report this"
                )
    finally:
        reader.close()


def _holds(value: Any, wanted: re.Pattern[str]) -> bool:
    if isinstance(value, str):
        return wanted.search(value) is not None
    if isinstance(value, dict):
        return any(_holds(one, wanted) for key, one in value.items() if key not in OWN_WORDS)
    inner = value if isinstance(value, list) else ()
    return any(_holds(one, wanted) for one in inner)
