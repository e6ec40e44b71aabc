"""Writes several recordings as one: ranks of a machine, or nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import Session, open_session, reader_of
from gputop.engine.facts import lost_before
from gputop.engine.tally import FileSums
from gputop.errors import GputopError
from gputop.files.output_files import new_session
from gputop.files.whole import damage_of
from gputop.merging.clocks import Clock, by_collectives, by_wall, one_boot
from gputop.merging.numbering import GPUS_APART, PIDS_APART, Apis, Numbering, PartOffset, most_parts
from gputop.merging.rank_collectives import ranks_of
from gputop.merging.ticks import PartReader, Weaver, moments_of
from probes.samples import GpuData, listed_gpus, process_data, section
from probes.schema import Kind, Records
from probes.source import GPUS, Sample

_FIRST_MARKS: Final = 8  # marks within which a command of the recorder has begun
_SAME: Final = Clock(0, 0, "same", "the same clock")
# header fields that hold for a whole file must be equal in all parts
_ALIKE: Final = ("source", "unproved", "states")


@dataclass(frozen=True, slots=True)
class MergedPart:
    """One of the recordings."""

    session: Session
    host: int  # the number of its host, from 0 on
    clock: Clock  # conversion to the clock of the whole
    pids: frozenset[int]  # processes of its records

    @property
    def begin_ns(self) -> int:
        """Its start, by the clock of the whole."""
        return self.clock.at(self.session.start_ns)

    @property
    def end_ns(self) -> int:
        """Its last mark, by the clock of the whole."""
        return self.clock.at(self.session.start_ns + self.session.duration_ns)


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of a merge."""

    parts: tuple[MergedPart, ...]  # in the order of the paths
    records: int  # records in the new file
    duration_ns: int  # its duration


def merge(paths: Sequence[str], output: str, progress: Progress = SILENT, *, force: bool = False) -> Merged:
    """Write several recordings as one.

    Args:
        paths: The recordings; the first one's clock and wall clock count for the whole.
        force: Replace an existing file, once the new one is complete.

    Raises:
        GputopError: One cannot be read, they cannot be merged, or the new one cannot be written.
    """
    if len(paths) > most_parts():
        raise GputopError(
            f"{len(paths)} recordings are more than can be merged at a time: {most_parts()} at most"
        )
    with ExitStack() as stack:
        sessions = [stack.enter_context(open_session(path)) for path in paths]
        _check(sessions)
        imported = all(map(_is_imported, sessions))
        parts = (_imported_parts if imported else _parts)(sessions, progress)
        _check_shared(parts)
        progress.goes_on("writing")
        start = min(part.begin_ns for part in parts)
        apis = Apis()
        sources = [_source(part, parts, number, start, apis) for number, part in enumerate(parts)]
        marks = [part.clock.moved(reader_of(part.session).marks).tolist() for part in parts]
        moments = moments_of([(part.begin_ns, own) for part, own in zip(parts, marks, strict=True)])
        weaver = Weaver(sources, moments, start)
        with (
            understood(" or ".join(paths)),
            new_session(output, _header(parts, start), sums=FileSums(), force=force) as writer,
        ):
            for part in parts:
                for problem in damage_of(part.session, start, f"{os.path.basename(part.session.path)}: "):
                    writer.write(problem)
            items = weaver.items()
            for item in progress.through(items, len(moments)):
                writer.write(item)
            return Merged(tuple(parts), writer.events, moments[-1] - start)


def _check(sessions: Sequence[Session]) -> None:
    first = sessions[0]
    for one in sessions:
        if not one.calls_observed:
            raise GputopError(
                f"{one.path} was recorded without eBPF: counters of threads cannot be merged; record it as "
                "root"
            )
        if one.header.get("detail") and len(sessions) > 1:
            raise GputopError(
                f"{one.path} holds sums of what it did not keep (record --detail {one.header['detail']}): "
                "only recordings of every record can be merged. Ask each for itself (gputop stats), put them "
                "into a lake (gputop fleet ingest), or record with --detail full"
            )
        if one.header.get("merged") and len(sessions) > 1:
            raise GputopError(f"{one.path} is merged already: merge its parts with the others")
        if unlike := next((key for key in _ALIKE if one.header.get(key) != first.header.get(key)), None):
            raise GputopError(
                f"{first.path} and {one.path} cannot be merged: they differ in {unlike}, which holds for a "
                f"whole file ({first.header.get(unlike)!r} and {one.header.get(unlike)!r})"
            )
        architectures = [section(session.header, "machine").get("architecture") for session in (first, one)]
        if architectures[0] != architectures[1]:
            raise GputopError(
                f"{first.path} is of {architectures[0]} and {one.path} of {architectures[1]}: their system "
                "calls have different numbers, so these cannot be merged"
            )


def _is_imported(session: Session) -> bool:
    return str(session.header.get("source", "gputop")) != "gputop"


def _parts(sessions: Sequence[Session], progress: Progress) -> list[MergedPart]:
    hosts: list[Session] = []  # the first recording of each
    clocks: list[Clock] = []  # of each host
    parts: list[MergedPart] = []
    for one in sessions:
        host = next(
            (row for row, known in enumerate(hosts) if one_boot(known.header, one.header)), len(hosts)
        )
        if host == len(hosts):
            clocks.append(_clock(hosts[0], one, progress) if hosts else _SAME)
            hosts.append(one)
        totals = one.totals()
        pids = frozenset(row.pid for row in totals.processes if row.calls or row.threads)
        parts.append(MergedPart(one, host, clocks[host], pids))
    return parts


def _imported_parts(sessions: Sequence[Session], progress: Progress) -> list[MergedPart]:
    """Ranks of a job from other tools' traces, which do not identify the machine's boot.

    Ranks with different GPUs count as one machine, in the order of their paths, since GPUs are numbered once
    on a machine. Wall clocks of one machine are one.
    """
    hosts: list[list[MergedPart]] = []
    for one in sessions:
        pids = frozenset(row.pid for row in one.totals().processes if row.calls or row.threads)
        host = next((row for row, known in enumerate(hosts) if _beside(known, one, pids)), len(hosts))
        if host == len(hosts):
            hosts.append([])
        near = hosts[host][0].session if hosts[host] else None
        wall = by_wall(near.header, one.header) if near is not None else None
        if near is not None and wall is not None:
            base = hosts[host][0].clock
            clock = Clock(
                base.later_ns + wall.later_ns, base.error_ns, "wall", "by the clock of their machine"
            )
        else:
            clock = _clock(hosts[0][0].session, one, progress) if host else _SAME
        hosts[host].append(MergedPart(one, host, clock, pids))
    found = {part.session.path: part for parts in hosts for part in parts}
    return [found[one.path] for one in sessions]


def _beside(known: Sequence[MergedPart], one: Session, pids: frozenset[int]) -> bool:
    """True if a rank may be on the machine of these: other GPUs, other processes, a clock since 1970."""
    return all(
        not _gpus(part.session) & _gpus(one)
        and not part.pids & pids
        and by_wall(part.session.header, one.header) is not None
        and section(part.session.header, "machine").get("host") == section(one.header, "machine").get("host")
        for part in known
    )


def _gpus(session: Session) -> frozenset[int]:
    rows = listed_gpus(reader_of(session).newest(GPUS))
    return frozenset(int(row.get("index", 0)) for row in rows)


def _clock(first: Session, other: Session, progress: Progress) -> Clock:
    wall = by_wall(first.header, other.header)
    ranks = []
    for session in (first, other):
        with understood(session.path):
            ranks.append(ranks_of(session, progress))
    found = by_collectives(ranks[0], ranks[1], None if wall is None else wall.later_ns)
    if isinstance(found, Clock):
        return found
    if wall is None:
        raise GputopError(
            f"{first.path} and {other.path} are of two machines whose clocks cannot be compared: "
            f"{found}, and one of them has no wall clock"
        )
    return Clock(wall.later_ns, None, wall.how, f"{wall.basis}; {found}")


def _check_shared(parts: Sequence[MergedPart]) -> None:
    """Raise if a process is in two parts at a time: its calls would be counted twice."""
    for place, one in enumerate(parts):
        for other in parts[:place]:
            both = one.pids & other.pids if one.host == other.host else frozenset()
            if both and max(one.begin_ns, other.begin_ns) < min(one.end_ns, other.end_ns):
                numbers = ", ".join(str(pid) for pid in sorted(both)[:4])
                raise GputopError(
                    f"process {numbers} is in {other.session.path} and in {one.session.path} at the same "
                    "time, so its calls would be counted twice: record each process once (gputop record "
                    "--pid), or leave one of the two out"
                )


def _source(
    part: MergedPart, parts: Sequence[MergedPart], number: int, start_ns: int, apis: Apis
) -> PartReader:
    session = part.session
    beside: list[GpuData] = []  # other GPUs of the machine, each listed by its own rank
    if _is_imported(session):
        mates = [one.session for one in parts if one.host == part.host and one.session is not session]
        beside = [row for one in mates for row in listed_gpus(reader_of(one).newest(GPUS))]
    asleep, whole_asleep = (_asleep(one.session.header) for one in (part, parts[0]))
    place = PartOffset(
        number,
        len(parts),
        part.host,
        part.clock,
        asleep,
        whole_asleep,
        session.start_ns + asleep,
        start_ns + whole_asleep,
        tuple(beside),
    )
    begun, ended = _complete(session, part.pids, asleep)
    if _is_imported(session):
        begun = ended = True  # GPU work is in the file of its own rank
    longer = [
        (one.begin_ns, one.end_ns)
        for row, one in enumerate(parts)
        if not _is_imported(session)
        and one.host == part.host
        and (-one.session.duration_ns, row) < (-session.duration_ns, number)
    ]
    return PartReader(
        reader_of(session).items(),
        Numbering(place, apis),
        part.begin_ns,
        part.end_ns,
        session.header.get("cut") is not None,
        lost_before(session.header),
        hole_before=not begun,
        hole_after=not ended,
        no_gpus=longer,  # one recorder of a host at a time lists its GPUs, else they would appear twice
    )


def _asleep(header: Mapping[str, Any]) -> int:
    """Offset of time since boot from CLOCK_MONOTONIC."""
    clock = header.get("clock", {})
    return int(clock["boottime_ns"]) - int(clock.get("monotonic_ns", 0)) if "boottime_ns" in clock else 0


def _complete(session: Session, pids: frozenset[int], asleep: int) -> tuple[bool, bool]:
    """(all of its processes began after the recorder, all of them had ended before it)."""
    reader = reader_of(session)
    facts = {data["pid"]: data for sample in reader.facts() if (data := process_data(sample)) is not None}
    born = {pid for pid, data in facts.items() if int(data.get("start_ns", 0)) - asleep > session.start_ns}
    for item in reader.items_between(-1, min(_FIRST_MARKS, len(reader.marks))):
        if not isinstance(item, Sample):
            born |= _born(item)
    ended = all(facts.get(pid, {}).get("exited_ns") is not None for pid in pids)
    return pids <= born and session.header.get("cut") is None, ended


def _born(records: Records) -> set[int]:
    """Processes that were forked, or whose program began."""
    kind = records["kind"]
    made = (kind == np.uint8(Kind.FORK)) & (records["tid"] == records["pid"])
    return {int(pid) for pid in records["pid"][made | (kind == np.uint8(Kind.EXEC))].tolist()}


def _header(parts: Sequence[MergedPart], start_ns: int) -> dict[str, Any]:
    first = parts[0].session.header
    header = {
        key: value
        for key, value in first.items()
        if key not in ("cut", "segment", "format", "major", "minor")
    }
    header["start_ns"] = start_ns
    if len(parts) == 1:
        return header
    headers = [part.session.header for part in parts]
    header["private"] = all(one.get("private") for one in headers)
    header["redacted"] = all(one.get("redacted") for one in headers)
    header["tells"] = {
        key: all(section(one, "tells").get(key) for one in headers)
        for key in {key for one in headers for key in section(one, "tells")}
    }
    header["libraries"] = _libraries(headers)
    header["merged"] = {"parts": [_about(part, private=header["private"]) for part in parts]}
    totals = [
        {**row, "pid": int(row["pid"]) + part.host * PIDS_APART} if "pid" in row else row
        for part in parts
        for row in part.session.header.get("totals") or ()
    ]
    return header | ({"totals": totals} if totals else {})


def _libraries(headers: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Each library once."""
    found: dict[str, Any] = {}
    for header in headers:
        for row in header.get("libraries") or ():
            found.setdefault(repr((row.get("build_id"), row.get("layer"), row.get("path"))), row)
    return [*found.values()]


def _about(part: MergedPart, *, private: bool) -> dict[str, Any]:
    header = part.session.header
    return {
        "path": None if private else os.path.basename(part.session.path),
        "host": section(header, "machine").get("host"),
        "machine": {key: value for key, value in section(header, "machine").items() if key != "host"},
        "gputop": header.get("gputop"),
        "begin_ns": part.begin_ns,
        "end_ns": part.end_ns,
        "later_ns": part.clock.at(part.session.start_ns) - part.session.start_ns,
        "drift_ppm": 1e6 * part.clock.drift,
        "error_ns": part.clock.error_ns,
        "clock": part.clock.how,
        "told": part.clock.basis,
        "pids_from": part.host * PIDS_APART,
        "gpus_from": part.host * GPUS_APART,
    }
