"""Which numbers there are, as ``np.unique`` says, and without the masked arrays that it loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from probes.arrays import distinct

RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "dataloader.msgpack"
# what a recorder does with records; loading masked arrays is what it must not do
RECORDER = """
import platform, sys
from gputop.engine.tally import FileSums
from probes.proc.open_files import OpenFiles
from probes.proc.roster import Roster
from probes.shapes import notice_shapes
from probes.source import Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
reader = SessionReader(sys.argv[1])
writer = SessionWriter(sys.argv[2], reader.header, private=True, sums=FileSums())
roster, files = Roster(), OpenFiles(platform.machine())
for item in reader.items():
    if not isinstance(item, Sample):
        files.notice(item)
        list(roster.notice(item))
        list(notice_shapes(item))
    writer.write(item)
writer.close()
print(writer.events, "numpy.ma" in sys.modules)
"""


@given(arrays.arrays(st.sampled_from(["u1", "u2", "u4", "u8", "i4", "i8"]), st.integers(0, 300)))
def test_they_are_those_of_numpy(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    before = values.copy()
    found, expected = distinct(values), np.unique(values)
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()
    assert values.tolist() == before.tolist()


def test_a_recorder_loads_no_masked_arrays(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RECORDER, str(RECORDING), str(tmp_path / "again.msgpack")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    events, loaded = done.stdout.split()
    assert int(events) > 1000
    assert loaded == "False"
