"""Cuts a stretch of time out of a session file; the new file has the same explanation as the whole there."""

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
    """Extent of an excerpt."""

    start_ns: int  # its start mark, ns from the start of the whole
    end_ns: int  # its last mark
    records: int  # records in it


def cut(
    session: Session,
    path: str,
    start_s: float | None,
    end_s: float | None,
    progress: Progress = SILENT,
    *,
    force: bool = False,
) -> CutResult:
    """Write the frames that cover a stretch of time to a new file.

    Facts go with it, and the few earlier calls that decide which streams may hold work
    (``gputop/analysis/proofs/retention.py``); these do not count as records of the new file.

    Args:
        start_s: Seconds from the start of the whole; None: from its start.
        end_s: The same; None: to its end.
        force: Replace an existing file, once the new one is complete.

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
                        writer.write(problem)  # no more reads follow
                writer.write(item)
            return CutResult(0 if first < 0 else moments[first], moments[last], writer.events)


def _marks(session: Session, start_s: float | None, end_s: float | None) -> tuple[int, int]:
    """Return (the mark before the stretch, -1 for the start of the recording; the mark that ends it)."""
    moments = np.array(session.moments_ns, np.int64)
    low, high = (start_s or 0.0) * NS, float(moments[-1]) if end_s is None else end_s * NS
    if not 0 <= low < min(high, float(moments[-1])):
        raise OutsideSessionError(
            f"there is nothing from {low / NS:g} s to {high / NS:g} s of this recording, which is "
            f"{moments[-1] / NS:.1f} s long"
        )
    first = int(np.searchsorted(moments, low, side="right")) - 1
    # one frame more: calls that end after the stretch prove the work in flight at its end
    return first, min(int(np.searchsorted(moments, high, side="left")) + 1, len(moments) - 1)


def _before(session: Session, items: Iterator[Item], first: int) -> tuple[Mapping[str, Any], list[Sample]]:
    """Consume everything before the part; return the part's header and its first samples."""
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
