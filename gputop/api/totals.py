"""The sums of a recording: from its recorder, or by reading it, a long one in several processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from gputop.api.reading import Progress, interrupted, open_file
from gputop.engine.session_totals import Stats, finish
from gputop.engine.tally import Tally, tally
from gputop.parts.mapreduce import EndedEarlyError, Segment, processors, reduced, segments_of
from probes.source import APIS, MARK, OPEN
from replay.reader import SessionReader

LONG_BYTES = 96 << 20  # of a file that is read in several processes
SEGMENT_BYTES = 24 << 20
FOREVER = 1 << 62  # ns


@dataclass(frozen=True, slots=True)
class PartTotals:
    """The sums of a part of a recording, and its damage."""

    sums: Tally
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """Adds up a recording part by part: exact, wherever it is cut (``gputop.parts.mapreduce.Work``).

    Attributes:
        header: Of the recording.
        known: Metadata, and open calls at the end.
    """

    header: Mapping[str, Any]
    known: Tally

    def map(self, segment: Segment) -> PartTotals:
        """Return the sums of one segment."""
        reader = _opened(segment.path)
        # the names of functions are at the beginning of the file
        names = (sample for sample in reader.facts() if sample.kind == APIS)
        # one item at a time: records need forty times their size in the file
        sums = tally(chain(names, reader.items_between(segment.after_mark, segment.until_mark)))
        return PartTotals(sums, tuple(reader.problems))

    def merge(self, earlier: PartTotals, later: PartTotals) -> PartTotals:
        """Join the sums of two segments."""
        earlier.sums.merge(later.sums.payload())
        return PartTotals(earlier.sums, (*earlier.problems, *later.problems))

    def finish(self, whole: PartTotals) -> Stats:
        """Return the totals, with names."""
        self.known.merge(whole.sums.payload())
        return finish(self.header, self.known)


@lru_cache(maxsize=1)
def _opened(path: str) -> SessionReader:
    """The file, opened once by a process that reads many parts of it."""
    return open_file(path)


def stats_of(reader: SessionReader, progress: Progress) -> Stats:
    """Return the totals of a recording in the fastest way; the reader's problems may grow."""
    # readings of counters do not add up: each needs the one before
    data = reader.totals() if reader.header.get("calls_observed") is not False else None
    if data is not None:
        whole = _known(reader)
        try:
            for part in data:
                whole.merge(part)
        except (ValueError, KeyError, TypeError):  # another program's, or a newer gputop's
            whole = _known(reader)
        else:
            if not reader.problems:
                return finish(reader.header, whole)
    if reader.size_bytes >= LONG_BYTES and reader.header.get("calls_observed") is not False:
        return _in_parts(reader, progress)
    items = reader.items()
    sums = tally(progress.through(items, len(reader.marks)))
    if progress.stopped:
        _ended_early(reader, sums.mark.time_ns if sums.mark is not None else 0)
    return finish(reader.header, sums)


def _ended_early(reader: SessionReader, until_ns: int) -> None:
    start = int(reader.header.get("start_ns", reader.marks[0]))
    reader.problems.append(interrupted(max(until_ns - start, 0), int(reader.marks[-1]) - start))


def _in_parts(reader: SessionReader, progress: Progress) -> Stats:
    work = Totals(dict(reader.header), _known(reader))
    count = -(-reader.size_bytes // SEGMENT_BYTES)
    segments = segments_of(reader.path, len(reader.marks), count)
    try:
        whole = reduced(work, segments, processors(), progress.parts, lambda: progress.stopped)
    except EndedEarlyError as early:
        if early.known is None:
            raise
        whole, last = early.known, segments[early.parts - 1].until_mark
        work = Totals(work.header, tally(reader.items_until(last, FOREVER, FOREVER)))
        _ended_early(reader, int(reader.marks[last]))
    reader.problems += [text for text in dict.fromkeys(whole.problems) if text not in reader.problems]
    return work.finish(whole)


def _known(reader: SessionReader) -> Tally:
    """Metadata, and open calls at the end, without sums."""
    known = Tally()
    for fact in reader.facts():
        known.know(fact)
    for sample in (reader.newest(OPEN), reader.newest(MARK)):
        if sample is not None:
            known.consume(sample)
    return known
