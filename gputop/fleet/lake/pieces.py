"""Pieces of a lake: files by date and job, and the list that makes them count."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from typing import Any, Final
from urllib.parse import quote

from gputop.errors import GputopError
from gputop.fleet.lake.lake_tables import COLUMNS, VERSION, Row
from gputop.format import escape_text

LISTS: Final = "pieces"  # the folder of the lists
NONE: Final = "__HIVE_DEFAULT_PARTITION__"  # name of a missing value in Hive, Spark and DuckDB
_LONGEST = 180  # bytes of a job in the name of a folder
_NAME = re.compile(r"[0-9a-f]{32}")
_PART = re.compile(r"[\w.%~-]{1,200}", re.ASCII)
Key = tuple[str, str]  # folder names of date and job


@dataclass(frozen=True, slots=True)
class LakeSelection:
    """A part of a lake."""

    job: str | None = None  # only this job; None: all
    # since, until: only sessions that began on or between these days, UTC; None: all
    since: date | None = None
    until: date | None = None

    def __bool__(self) -> bool:
        """True if it is not the whole lake."""
        return (self.job, self.since, self.until) != (None, None, None)

    def holds(self, key: Key, table: str) -> bool:
        """True if files of a partition may have rows of it."""
        day, job = key
        if (self.since and day < self.since.isoformat()) or (
            self.until and (day == NONE or day > self.until.isoformat())
        ):
            return False
        # a session of several jobs is stored without one
        several = table in ("sessions", "problems") and job == NONE
        return self.job is None or several or job == job_key(self.job)


@dataclass(frozen=True, slots=True)
class Piece:
    """A list of files that count."""

    name: str  # name of the piece, and of each of its files
    keys: Mapping[str, Sequence[Key]]  # table -> partitions with a file
    known: Sequence[str]  # hashes of its recordings
    versions: Sequence[str] = ()  # storage versions of these; see ``urls.version_of``
    # hash of a content -> its recording, end and length. Two contents of one recording are its states before
    # and after it grew
    recordings: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Path of the list itself."""
        return f"{LISTS}/{self.name}.json"

    def files(self, table: str, part: LakeSelection) -> list[str]:
        """Return the files of a table that may have rows of a part."""
        return [self.file(table, key) for key in self.keys.get(table, ()) if part.holds(key, table)]

    def file(self, table: str, key: Key) -> str:
        """Return the file of a partition."""
        return f"{table}/date={key[0]}/job={key[1]}/{self.name}.parquet"

    def all_files(self) -> list[str]:
        """Every one."""
        return [self.file(table, key) for table, keys in self.keys.items() for key in keys]

    def packed(self) -> bytes:
        """Return the list's file content."""
        document = {
            "version": VERSION,
            "keys": {table: [*map(list, keys)] for table, keys in self.keys.items()},
            "known": [*self.known],
            "versions": [*self.versions],
            "recordings": self.recordings,
        }
        return json.dumps(document, indent=1).encode()


def unpacked(lake: str, place: str, data: bytes) -> Piece:
    """Parse a list.

    Raises:
        GputopError: A newer gputop wrote it, or another program.
    """
    try:
        document = json.loads(data)
        newer = int(document["version"]) > VERSION
        name = place.removeprefix(f"{LISTS}/").removesuffix(".json")
        keys = {
            table: [(_checked(day), _checked(job)) for day, job in document["keys"].get(table, ())]
            for table in COLUMNS
        }
        known, versions = [*map(str, document["known"])], [*map(str, document["versions"])]
        recordings = {
            str(one): (str(whole), int(until), int(length))
            for one, (whole, until, length) in document.get("recordings", {}).items()
        }
        if not _NAME.fullmatch(name):
            raise ValueError(name)
    # JSON may also hold huge numbers and depths
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise GputopError(
            f"{place} of {lake} cannot be read ({error}): it is damaged, or another program wrote it"
        ) from error
    if newer:
        raise GputopError(f"a newer gputop added to {lake}: upgrade gputop to query it")
    return Piece(name, keys, known, versions, recordings)


def _checked(part: Any) -> str:
    """A path component that cannot lead elsewhere."""
    if not isinstance(part, str) or not _PART.fullmatch(part):
        raise ValueError(part)
    return part


def job_key(job: str) -> str:
    """Return the folder name of a job; jobs of very long names may share one."""
    return quote(escape_text(job), safe="", encoding="utf-8", errors="replace")[:_LONGEST] or NONE


def partitioned(rows: Mapping[str, Sequence[Row]]) -> dict[str, dict[Key, list[Row]]]:
    """Return rows of each table by partition: the session's start day and the process's job."""
    days = {row["session_id"]: _day(row.get("start_wall_ns")) for row in rows.get("sessions", ())}
    jobs = {row["session_id"]: _job(row.get("session_job")) for row in rows.get("sessions", ())}
    members = {
        row["member"]: (days.get(row["session_id"], NONE), _job(row.get("job")))
        for row in rows.get("communicators", ())
    }
    found: dict[str, dict[Key, list[Row]]] = {table: {} for table in COLUMNS}
    for table in COLUMNS:
        for row in rows.get(table, ()):
            if "member" in row and "session_id" not in row:
                key = members.get(row["member"], (NONE, NONE))
            else:
                session = row["session_id"]
                own = _job(row["job"]) if "job" in row else jobs.get(session, NONE)
                key = days.get(session, NONE), own
            found[table].setdefault(key, []).append(row)
    return found


def known_of(rows: Mapping[str, Iterable[Row]]) -> list[str]:
    """Return the hashes of recordings in rows."""
    found = (row["session_id"] for table in ("sessions", "problems") for row in rows.get(table, ()))
    return sorted({one for one in found if one})


def recordings_of(rows: Mapping[str, Iterable[Row]]) -> dict[str, tuple[str, int, int]]:
    """Return (recording, end, length in ns) of each session."""
    sessions = (row for row in rows.get("sessions", ()) if row.get("recording"))
    return {row["session_id"]: (row["recording"], row["until_ns"], row["duration_ns"]) for row in sessions}


def _day(start_wall_ns: Any) -> str:
    if not isinstance(start_wall_ns, int) or start_wall_ns <= 0:
        return NONE
    try:
        return datetime.fromtimestamp(start_wall_ns // 10**9, timezone.utc).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return NONE


def _job(job: Any) -> str:
    return job_key(str(job)) if job else NONE
