"""Held memory under real probes equals the program's own account, by line, at every moment that it tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.evidence.memory_ledger import Held
from gputop.api.session import Session
from probes import api
from probes.schema import Records, join, select
from probes.source import Item, Sample
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop

pytestmark = [pytest.mark.ebpf]
PROGRAM = PROGRAMS / "memory_account.py"


def items_of(run: Recorded) -> list[Item]:
    with Session(run.path) as session:
        return list(session.items())


def lines_of(items: list[Item]) -> dict[int, int]:
    """Stack -> the line of the program itself."""
    found = {}
    for item in items:
        if isinstance(item, Sample) and item.kind == "frames":
            for stack, frames in zip(item.data["stack"], item.data["frames"], strict=True):
                lines = [
                    line for file, line, function in frames if file == str(PROGRAM) and function != "made"
                ]
                found[stack] = lines[0] if lines else 0
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("seed", "moments"),
    [
        (1, 12),
        pytest.param(2, 12, marks=pytest.mark.long),
        pytest.param(3, 1000, marks=pytest.mark.long),
    ],
)
def test_what_each_line_holds_is_the_programs_own_account(tmp_path: Path, seed: int, moments: int) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    run = workshop.python("memory_account.py", str(seed), str(moments))
    assert run.lost == 0
    items = items_of(run)
    records: Records = join([item for item in items if not isinstance(item, Sample)])
    lines, held, done = lines_of(items), Held(), 0
    assert len(run.said) == moments
    for said in run.said:
        moment = said["time_ns"]
        now = (records["t_end"] > done) & (records["t_end"] <= moment)
        held.add(select(records, now & (records["pid"] == np.uint32(said["pid"]))))
        held.mark(moment)
        done = moment
        seen: dict[str, int] = {}
        for (_pid, use, stack), one in held.sums.items():
            if one.held:
                key = f"{use}:{lines[stack]}"
                seen[key] = seen.get(key, 0) + one.held
        assert seen == said["held"]
        assert not held.strangers
    assert {row.memory for row in api.BY_OP} >= {key.partition(":")[0] for key in run.said[-1]["held"]}
    held.add(select(records, records["t_end"] > done))
    held.mark(int(records["t_end"].max()))
    assert not any(one.held for one in held.sums.values()), "the end of a process gives all back"
