"""What an hour on the screen leaves behind: its frames and explanations, one right after the other."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path

from tests import fake_frames, fake_reports
from tests.bench.rows import Row
from tests.screen_support import Shown

BOUND = 5.0
PROCESSES, GPUS = 50, 8
RATE_HZ, HOUR_S = 4, 3600
FIRST_S = 600  # until then what is kept of the past (five minutes of lanes) fills up
SIZE = (200, 50)


def resident_mb() -> float:
    """What this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def rows(_folder: Path) -> list[Row]:
    """Resident memory gained from the tenth minute to the sixtieth."""
    made = [fake_frames.frame(tick, processes=PROCESSES, gpus=GPUS) for tick in range(RATE_HZ)]
    finding = fake_reports.finding()
    screen, before = Shown(made[0], size=SIZE), 0.0
    start = made[0].time_ns
    for second in range(HOUR_S):
        now = start + second * fake_frames.S
        lanes = fake_reports.lanes(now, gpus=GPUS)
        screen.explain(replace(fake_reports.explained(finding), end_ns=now, lanes=lanes))
        for tick, frame in enumerate(made):
            time_ns = now + tick * fake_frames.S // RATE_HZ
            screen.show(replace(frame, number=second * RATE_HZ + tick, time_ns=time_ns))
        if second == FIRST_S:
            before = resident_mb()
    gained = resident_mb() - before
    screen.close()
    detail = (
        f"{HOUR_S * RATE_HZ} frames of {PROCESSES} processes at 200x50; {before:.0f} MB after ten minutes"
    )
    return [Row("memory gained in an hour on the screen", gained, "MB", BOUND, detail)]
