"""The recordings of the repository as parameters: one of each kind in ``make test``, all with ``-m long``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import gputop
from gputop.analysis.answer.report import Report

RECORDINGS = sorted((Path(__file__).resolve().parent.parent / "recordings").glob("*.msgpack"))
#: Loader processes, nothing wrong, reads of each step, and a machine that others use.
KINDS = frozenset({"dataloader-workers", "healthy", "numpy-sync", "storm"})


def _marks(file: Path) -> tuple[pytest.MarkDecorator, ...]:
    return () if file.stem in KINDS else (pytest.mark.long,)


FILES = [pytest.param(file, id=file.stem, marks=_marks(file)) for file in RECORDINGS]
NAMES = [pytest.param(file.stem, marks=_marks(file)) for file in RECORDINGS]
# tests of reports run in one process, which has each of them once
REPORTS = pytest.mark.xdist_group("reports")


@cache
def report_of(file: Path) -> Report:
    """What ``gputop explain`` says of a recording."""
    return gputop.explain(file)
