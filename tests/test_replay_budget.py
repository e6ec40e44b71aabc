"""Recording costs at most 250 ns and 10 bytes per event.

``PYTHONPATH=. python tests/test_replay_budget.py`` shows the figures; the test allows a busy machine three
times as much.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from probes.source import Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests.session_data import HEADER, realistic
from tests.waiting import until_good
from tests.yardstick import turn_s

TICK_RECORDS = 10_000  # 40,000 events a second, four ticks a second
BATCH_RECORDS = 2_500


def cost(folder: Path, private: bool = False, tick: int = TICK_RECORDS) -> tuple[float, float, float]:
    """CPU nanoseconds and bytes per event when recording, and CPU nanoseconds per event when reading."""
    records = realistic(100_000)
    path = folder / "session.msgpack"
    best = float("inf")
    for _ in range(3):
        start = time.process_time_ns()
        writer = SessionWriter(path, HEADER, private=private)
        for position in range(0, len(records), min(BATCH_RECORDS, tick)):
            writer.write(records[position : position + min(BATCH_RECORDS, tick)])
            if position % tick == 0:
                writer.write(Sample("gpus", position, {"gpus": [{"index": 0, "util": 50}]}))
                writer.write(Sample("mark", position, {"lost": [0] * 5}))
        writer.close()
        best = min(best, time.process_time_ns() - start)
    start = time.process_time_ns()
    reader = SessionReader(path)
    read = sum(len(item) for item in reader.items() if not isinstance(item, Sample))
    reader.close()
    assert read == len(records)
    return best / read, writer.size_bytes / read, (time.process_time_ns() - start) / read


@pytest.mark.slow
def test_recording_stays_within_its_budget(tmp_path: Path) -> None:
    def turns() -> float:
        cpu_ns, size, _ = cost(tmp_path)
        assert size <= 10
        return cpu_ns * 1e-9 / turn_s()

    found = until_good(turns, lambda found: found < 90)
    assert found < 90, "0.2 to 0.4 us where a turn of a loop of Python takes 8 ns"


def seek_ms(folder: Path) -> float:
    """Opening an hour of marks at 4 Hz and reading the items of one tick in the middle."""
    path = folder / "long.msgpack"
    writer = SessionWriter(path, HEADER)
    records = realistic(50)
    for _ in range(4 * 3600):
        records["t_end"] += np.uint64(250_000_000)
        writer.write(records)
        writer.write(Sample("mark", int(records["t_end"].max()), {"lost": [0] * 5}))
    writer.close()
    start = time.perf_counter()
    reader = SessionReader(path)
    opened = time.perf_counter()
    since = int(reader.marks[7198])
    assert len(list(reader.items_until(7199, since + 1, since + 1))) == 2
    seeked = time.perf_counter()
    reader.close()
    sys.stdout.write(
        f"an hour at 4 Hz: open {1e3 * (opened - start):.0f} ms, seek {1e3 * (seeked - opened):.2f} ms\n"
    )
    return (seeked - opened) * 1e3


def show(what: str, figures: tuple[float, float, float]) -> None:
    """One line of figures."""
    cpu_ns, size, read_ns = figures
    sys.stdout.write(f"{what}: record {cpu_ns:.0f} ns, {size:.2f} bytes; read {read_ns:.0f} ns per event\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for tick in (500, 2_500, 5_000, 10_000, 20_000):
            show(f"{tick} a tick", cost(Path(name), tick=tick))
        show("private", cost(Path(name), private=True))
        seek_ms(Path(name))
