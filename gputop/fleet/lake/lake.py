"""A lake: pieces that appear whole or not at all, by date and job, and the tables that they form."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, time, timedelta, timezone
from typing import Any, Final
from uuid import uuid4

from gputop.documents.field_columns import INT, REAL, TEXT
from gputop.errors import GputopError
from gputop.fleet.lake.lake_tables import COLUMNS, FORMER, NEW, Row, write_table
from gputop.fleet.lake.pieces import (
    LISTS,
    LakeSelection,
    Piece,
    known_of,
    partitioned,
    recordings_of,
    unpacked,
)
from gputop.fleet.lake.storage import UNFINISHED, Place, place_of
from gputop.fleet.lake.urls import shown
from gputop.format import escape_text
from gputop.query.database import LockedDatabase

OLD_PIECE: Final = "piece-"  # a folder with a file for each table, before version 3
ALL: Final = LakeSelection()
_TYPES = {INT: "BIGINT", REAL: "DOUBLE", TEXT: "VARCHAR"}
_WHOSE = ("sessions", "findings", "communicators")  # they decide which rows belong to a job or a day
_AT_ONCE = 1 << 31


@contextmanager
def adding_to(lake: str) -> Iterator[None]:
    """Context manager: make the lake if needed, lock a folder, and remove a killed run's unlisted files.

    Raises:
        GputopError: It cannot be made, is no folder, or another run adds to it.
    """
    place = place_of(lake)
    with place.held():
        pieces = _Pieces(lake, place, new=True)
        wanted = {file for piece in pieces.listed for file in (piece.place, *piece.all_files())}
        left = [
            name
            for name in place.left()
            if UNFINISHED in name or (name not in wanted and name.partition("/")[0] in COLUMNS)
        ]
        if left:
            place.remove(left)
        yield


def add_piece(lake: str, rows: Mapping[str, Sequence[Row]], versions: Sequence[str] = ()) -> None:
    """Add rows to all tables at once; those of a session together.

    Args:
        rows: By table.
        versions: Storage versions of the recordings of these rows.

    Raises:
        GputopError: It cannot be written.
    """
    place = place_of(lake)
    found = partitioned(rows)
    keys = {table: sorted(parts) for table, parts in found.items()}
    piece = Piece(uuid4().hex, keys, known_of(rows), versions, recordings_of(rows))
    files = {}
    for table, parts in found.items():
        for key, some in parts.items():
            file = io.BytesIO()
            write_table(table, some, file)
            files[piece.file(table, key)] = file.getvalue()
    try:
        place.write(files)
        place.write({piece.place: piece.packed()})
    except BaseException:
        place.remove([*files])
        raise


def open_lake(
    lake: str, tables: Collection[str] = tuple(COLUMNS), part: LakeSelection = ALL
) -> LockedDatabase:
    """Return the tables of a lake for queries.

    Args:
        lake: Its folder or URL.
        tables: Tables to load.
        part: Part to load; only its files are read.

    Raises:
        GputopError: It is no lake, is damaged, or duckdb is not installed.
    """
    place = place_of(lake)
    pieces = _Pieces(lake, place)
    # tables that select rows of others come first
    wanted = [table for table in COLUMNS if table in tables or (part and table in _WHOSE)]

    def fill(connection: Any) -> None:
        for table in wanted:
            made = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in COLUMNS[table].items())
            connection.execute(f'CREATE TABLE "{table}" ({made})')
            for names, is_new, but, whose in pieces.of(table, part):
                with place.local(names) as files, place.local(whose) as origins:
                    _insert(connection, table, files, is_new, but, origins)
        if part:
            _only(connection, wanted, part)
        for table in set(wanted) - {*tables}:
            connection.execute(f'DROP TABLE "{table}"')

    return LockedDatabase(fill)


def known_in(lake: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the hashes and storage versions in a lake, including recordings that could not be explained."""
    pieces = _Pieces(lake, place_of(lake))
    known = {one for piece in pieces.listed for one in piece.known}
    versions = frozenset(one for piece in pieces.listed for one in piece.versions)
    if pieces.old:
        with closing(open_lake(lake, ("sessions", "problems"))) as database:
            text = "SELECT session_id FROM sessions UNION SELECT session_id FROM problems"
            known |= {row[0] for row in database.query(text, _AT_ONCE, 600).rows if row[0]}
    return frozenset(known), versions


class _Pieces:
    """The pieces of a lake, and which of their files a query reads."""

    def __init__(self, lake: str, place: Place, *, new: bool = False) -> None:
        self._place = place
        root: list[str] = []
        try:
            root = place.listing("")
        except GputopError:
            if not new:
                raise
        names = [f"{LISTS}/{name}" for name in place.listing(LISTS) if name.endswith(".json")]
        self.old = [name for name in root if name.startswith(OLD_PIECE)]
        contents = zip(names, place.read(names), strict=True)
        self.listed = [unpacked(shown(lake), name, data) for name, data in contents]
        self._not_counted = self._of_two_runs()
        for piece, sessions in self._gone_on().items():
            self._not_counted.setdefault(piece, set()).update(sessions)

    def of(
        self, table: str, part: LakeSelection
    ) -> Iterator[tuple[list[str], bool, Sequence[str], list[str]]]:
        """Yield (files, whether they have all columns, sessions to skip, files of their members)."""
        old = [f"{folder}/{table}.parquet" for folder in self.old]
        old = [name for name in old if f"{table}.parquet" in self._place.listing(name.partition("/")[0])]
        if old:
            yield old, False, (), []
        whole = [one for one in self.listed if one.name not in self._not_counted]
        if once := [name for one in whole for name in one.files(table, part)]:
            yield once, True, (), []
        for piece in self.listed:
            if piece.name in self._not_counted and (files := piece.files(table, part)):
                whose = [] if "session_id" in COLUMNS[table] else piece.files("communicators", ALL)
                yield files, True, sorted(self._not_counted[piece.name]), whose

    def _of_two_runs(self) -> dict[str, set[str]]:
        """Piece -> sessions that an earlier piece has too: two runs added to a storage at once."""
        seen: set[str] = set()
        twice = {}
        for piece in self.listed:
            if again := seen & {*piece.known}:
                twice[piece.name] = again
            seen |= {*piece.known}
        return twice

    def _gone_on(self) -> dict[str, set[str]]:
        """Piece -> sessions whose recordings grew and were ingested again later."""
        newest: dict[str, tuple[int, int, str]] = {}
        for piece in self.listed:
            for session, (recording, until, length) in piece.recordings.items():
                one = (until, length, session)
                newest[recording] = max(newest.get(recording, one), one)
        gone_on: dict[str, set[str]] = {}
        for piece in self.listed:
            for session, (recording, *_length) in piece.recordings.items():
                if newest[recording][-1] != session:
                    gone_on.setdefault(piece.name, set()).add(session)
        return gone_on


def _insert(
    connection: Any, table: str, files: Sequence[str], is_new: bool, but: Sequence[str], whose: Sequence[str]
) -> None:
    """Insert the rows of files, except those of some sessions; members are found by communicators."""
    names = ", ".join(
        f'NULL AS "{name}"' if not is_new and (table, name) in NEW else FORMER.get((table, name), f'"{name}"')
        for name in COLUMNS[table]
    )
    text = f'INSERT INTO "{table}" SELECT {names} FROM read_parquet(?, hive_partitioning=false)'
    if not but:
        connection.execute(text, [[*files]])
    elif "session_id" in COLUMNS[table]:
        others = "session_id IS NULL OR session_id NOT IN (SELECT unnest(?))"
        connection.execute(f"{text} WHERE {others}", [[*files], [*but]])
    else:
        members = "SELECT member FROM read_parquet(?, hive_partitioning=false)"
        theirs = f"{members} WHERE session_id IN (SELECT unnest(?))"
        connection.execute(f"{text} WHERE member NOT IN ({theirs})", [[*files], [*whose], [*but]])


def _only(connection: Any, tables: Sequence[str], part: LakeSelection) -> None:
    """Delete rows outside a part: old pieces hold everything, and a session may have several jobs."""
    ids = "SELECT session_id FROM sessions"
    job = escape_text(part.job) if part.job is not None else None  # as it is written
    low = _ns(part.since, 0) if part.since else None
    high = _ns(part.until, 1) if part.until else None
    if low is not None:
        connection.execute("DELETE FROM sessions WHERE start_wall_ns IS NULL OR start_wall_ns < ?", [low])
    if high is not None:
        connection.execute("DELETE FROM sessions WHERE start_wall_ns IS NULL OR start_wall_ns >= ?", [high])
    for table in ("findings", "communicators"):
        connection.execute(f"DELETE FROM {table} WHERE session_id NOT IN ({ids})")
        if job is not None:
            connection.execute(f"DELETE FROM {table} WHERE job IS DISTINCT FROM ?", [job])
    if job is not None:
        of_it = "SELECT session_id FROM findings UNION SELECT session_id FROM communicators"
        others = f"session_job IS DISTINCT FROM ? AND session_id NOT IN ({of_it})"
        connection.execute(f"DELETE FROM sessions WHERE {others}", [job])
    for table in tables:
        if table == "problems":
            connection.execute(f"DELETE FROM problems WHERE session_id IS NULL OR session_id NOT IN ({ids})")
        elif "session_id" not in COLUMNS[table]:
            connection.execute(
                f"DELETE FROM {table} WHERE member NOT IN "
                "(SELECT member FROM communicators WHERE member IS NOT NULL)"
            )


def _ns(day: Any, later: int) -> int:
    start = datetime.combine(day + timedelta(days=later), time(), timezone.utc)
    return int(start.timestamp()) * 10**9
