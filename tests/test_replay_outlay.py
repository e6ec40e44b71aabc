"""What gputop writes is never more than its reader allows, however well it shrinks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from probes.schema import Kind, empty
from probes.source import Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter


@pytest.mark.slow
def test_records_and_samples_that_are_all_alike_are_read_back(tmp_path: Path) -> None:
    records = empty(1 << 16)
    records["kind"], records["pid"], records["tid"] = Kind.CALL, 7, 7
    path = tmp_path / "alike.msgpack"
    writer = SessionWriter(path, {"start_ns": 1})
    for part in range(20):
        first = 1 + part * len(records)
        records["seq"] = records["t_end"] = np.arange(first, first + len(records))
        writer.write(records)
        writer.write(Sample("activity", first, {"zeros": bytes(1 << 20)}))
    writer.close()
    assert path.stat().st_size < 20 << 20
    reader = SessionReader(str(path))
    items = list(reader.items())
    assert reader.problems == []
    reader.close()
    samples = [item for item in items if isinstance(item, Sample)]
    assert sum(len(item) for item in items if not isinstance(item, Sample)) == 20 << 16
    assert [len(sample.data["zeros"]) for sample in samples] == [1 << 20] * 20
