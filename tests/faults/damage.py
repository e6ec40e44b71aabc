"""Recordings with records taken out: what a ring that overflows leaves, but without any mark of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from probes import schema
from probes.source import Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter

Keep = Callable[[schema.Records], npt.NDArray[np.bool_]]


def without(source: Path, target: Path, keep: Keep) -> int:
    """Writes the recording again with the records that ``keep`` chooses; returns how many are gone."""
    reader = SessionReader(source)
    writer = SessionWriter(target, reader.header)
    gone = 0
    for item in reader.items():
        if isinstance(item, Sample):
            writer.write(item)
            continue
        chosen = keep(item)
        gone += int(np.count_nonzero(~chosen))
        if chosen.any():
            writer.write(schema.select(item, chosen))
    writer.close()
    reader.close()
    return gone


def at_random(share: float, seed: int, since_ns: int = 0) -> Keep:
    """Drops so large a share of the records, whichever."""
    random = np.random.default_rng(seed)
    return lambda records: (random.random(len(records)) >= share) | (records["t_end"] < since_ns)


def one_each(period_ns: int, seed: int) -> Keep:
    """Drops one record in each period."""
    random = np.random.default_rng(seed)
    done: set[int] = set()

    def keep(records: schema.Records) -> npt.NDArray[np.bool_]:
        chosen = np.ones(len(records), np.bool_)
        periods = records["t_end"] // period_ns
        for period in np.unique(periods).tolist():
            if period not in done:
                done.add(period)
                chosen[random.choice(np.flatnonzero(periods == period))] = False
        return chosen

    return keep
