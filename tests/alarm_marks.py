"""Marks that alerts count by, and the lines that they write."""

from __future__ import annotations

import pytest

from probes.source import MARK, Sample

S = 1_000_000_000


def mark(second: int, lost: int = 0) -> Sample:
    return Sample(MARK, second * S, {"number": second, "lost": {"calls": lost}})


def said_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if "alert" in line]
