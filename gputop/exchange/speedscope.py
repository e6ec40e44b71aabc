"""The lines of a recording as a speedscope profile (speedscope.app, format 0.0.1): sums by stack."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, BinaryIO

from gputop.api.reading import SILENT, Progress
from gputop.api.session import Session
from gputop.engine.calls.stack_table import Line
from gputop.exchange.stacks import StackTime, stack_times
from gputop.format import escape_text

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write_speedscope(session: Session, file: BinaryIO, progress: Progress = SILENT) -> None:
    """Write the profiles of each process: calls, waits between calls, GPU time."""
    stacks = stack_times(session, progress)
    frames = _Frames()
    profiles = [
        frames.profile(
            f"{stacks.names.get(pid, '')} ({pid}): {what}", [row for row in rows if row.pid == pid]
        )
        for what, rows in (
            ("in CUDA calls", stacks.calls),
            ("off the CPU between calls", stacks.waits),
            ("on the GPU", stacks.kernels),
        )
        for pid in sorted({row.pid for row in rows})
    ]
    document = {
        "$schema": _SCHEMA,
        "exporter": "gputop",
        "name": escape_text(os.path.basename(session.path)),
        "activeProfileIndex": 0,
        "shared": {"frames": frames.rows},
        "profiles": profiles,
    }
    file.write(json.dumps(document).encode())


class _Frames:
    """Each frame once; profiles refer to it by number."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[tuple[str, str, int], int] = {}

    def profile(self, name: str, rows: Sequence[StackTime]) -> dict[str, Any]:
        samples = [
            [
                *(self._number(f"range {row.ranges}", "", 0) for _ in row.ranges[:1]),
                *map(self._line, reversed(row.frames)),
                self._number(row.what, "", 0),
            ]
            for row in rows
        ]
        return {
            "type": "sampled",
            "name": escape_text(name),
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": sum(row.ns for row in rows),
            "samples": samples,
            "weights": [row.ns for row in rows],
        }

    def _line(self, line: Line) -> int:
        return self._number(line.function or line.text(), line.file, line.line)

    def _number(self, name: str, file: str, line: int) -> int:
        key = name, file, line
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            row: dict[str, Any] = {"name": escape_text(name)}
            if file:
                row["file"] = escape_text(file)
            if line:
                row["line"] = line
            self.rows.append(row)
        return self._numbers[key]
