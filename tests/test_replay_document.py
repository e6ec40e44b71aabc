"""docs/session-format.md tells the truth: its reader reads what the recorder writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probes import source
from probes.schema import RECORD, Records, empty
from probes.source import Sample
from replay.coding import file_format as fmt
from tests.session_data import noise, read, realistic, session, write

DOCUMENT = Path(__file__).parent.parent / "docs" / "session-format.md"
TEXT = DOCUMENT.read_text()


@pytest.mark.parametrize("records", [realistic(8000), noise(400), realistic(1)])
def test_the_reader_in_the_document_reads_everything(tmp_path: Path, records: Records) -> None:
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert code is not None
    lines = [line for line in code.group(1).splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 30
    space: dict[str, Any] = {"__name__": "document"}
    exec(compile(code.group(1), str(DOCUMENT), "exec"), space)
    path = write(tmp_path / "s", session(records))
    rest = list(space["items"](path))
    expected = read(path)
    assert len(rest) == len(expected)
    for (kind, time, data), item in zip(rest, expected, strict=True):
        if isinstance(item, Sample):
            assert (kind, time, data) == (item.kind, item.time_ns, item.data)
            continue
        assert kind == "records"
        again = empty(len(item))
        for name in RECORD.names or ():
            again[name] = data.get(name, np.zeros(1, RECORD[name]))
        assert again.tobytes() == item.tobytes()


def test_the_document_names_this_version_and_all_kinds() -> None:
    assert f"format **{fmt.MAJOR}.{fmt.MINOR}**" in TEXT
    assert fmt.SYNC.hex(" ") in TEXT
    for name in ("MARK", "GPUS", "PROCESS", "CLIENT", "NAMES", "OPEN", "APIS", "PROBLEM", "NOTE"):
        assert f"| `{getattr(source, name)}` |" in TEXT
