"""A part of a session file as a file of its own, which explains like the whole over that part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputop.analysis.window import Window
from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import NS, Session, reader_of
from gputop.errors import OutsideSessionError
from gputop.files.output_files import new_session
from gputop.files.whole import damage_of
from probes.samples import lost_until
from probes.source import MARK, Item, Sample
from replay.items import FACTS
from replay.past.history import cut_header
from replay.state_snapshot import FactBook


@dataclass(frozen=True, slots=True)
class CutResult:
    """What was cut.

    Attributes:
        start_ns: The mark after which it begins, ns from the start of the whole.
        end_ns: The mark with which it ends.
        records: Records in it.
    """

    start_ns: int
    end_ns: int
    records: int


def cut(
    session: Session,
    path: str,
    start_s: float | None,
    end_s: float | None,
    progress: Progress = SILENT,
    *,
    force: bool = False,
) -> CutResult:
    """Writes the frames that cover a stretch of time to a new file.

    What the explanation of the part rests on goes with it: facts, and the few calls from before that say
    which streams may hold work (``gputop/analysis/proofs/retention.py``), which are no records of the new
    file.

    Args:
        start_s: Seconds from the start of the whole; None: from its start.
        end_s: The same; None: to its end.
        force: Takes the place of what is there, once it is whole.

    Raises:
        OutsideSessionError: The stretch holds no frame.
        GputopError: The file cannot be read, or the new one not be written.
    """
    first, last = _marks(session, start_s, end_s)
    reader = reader_of(session)
    whole = reader.items_between(-1, last)
    items = iter(progress.through(whole, last + 1))
    moments = session.moments_ns
    with understood(session.path):
        header, before = _before(session, items, first)
        with new_session(path, header, force=force) as writer:
            for sample in before:
                writer.write(sample)
            end_ns = session.start_ns + moments[last]
            for item in items:
                if isinstance(item, Sample) and item.kind == MARK and item.time_ns >= end_ns:
                    for problem in damage_of(session, end_ns, "of the recording that this is a part of: "):
                        writer.write(problem)  # all that is read is read by now
                writer.write(item)
            return CutResult(0 if first < 0 else moments[first], moments[last], writer.events)


def _marks(session: Session, start_s: float | None, end_s: float | None) -> tuple[int, int]:
    """(the mark before the stretch, -1 for the start of the recording; the mark that ends it)."""
    moments = np.array(session.moments_ns, np.int64)
    low, high = (start_s or 0.0) * NS, float(moments[-1]) if end_s is None else end_s * NS
    if not 0 <= low < min(high, float(moments[-1])):
        raise OutsideSessionError(
            f"there is nothing from {low / NS:g} s to {high / NS:g} s of this recording, which is "
            f"{moments[-1] / NS:.1f} s long"
        )
    first = int(np.searchsorted(moments, low, side="right")) - 1
    # one frame more: what is under way at the end is proved by the call that ends after it
    return first, min(int(np.searchsorted(moments, high, side="left")) + 1, len(moments) - 1)


def _before(session: Session, items: Iterator[Item], first: int) -> tuple[Mapping[str, Any], list[Sample]]:
    """Consumes what lies before the part; returns the part's header and its first samples."""
    if first < 0:
        return session.header, []
    start = session.start_ns + session.moments_ns[first]
    facts, window, lost = FactBook(), Window(session.header), {}
    for item in items:
        window.feed(item)
        if isinstance(item, Sample) and item.kind in FACTS:
            facts.consume(item)
        if isinstance(item, Sample) and item.kind == MARK:
            lost, first = lost_until(item), first - 1
            if first < 0:
                break
    header = cut_header(session.header, start, lost)
    return header, [*facts.samples(start), *window.before()]
