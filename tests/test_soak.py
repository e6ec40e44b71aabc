"""A day of calls, switches and forks, through all of the live path: it takes no more at its end than before.

``make test-long``; GPUTOP_SOAK_HOURS for another length, of the clock that runs in it: an hour takes a minute
or two. Less than two are too few: the history and the checkpoints of the explanation fill up in the first
tenth, as do the tables of names, ends and stacks, which are made small for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.analysis.incremental import FIRST_SHARE, LOOK_SHARE
from tests.soak.machine import FORKS, LINE, TICK_NS

HOURS = float(os.environ.get("GPUTOP_SOAK_HOURS", "24"))
_PATIENCE_S = 900 + 900 * HOURS  # on a machine that is busy with other things
_MEMORY_BYTES = 8 << 20  # that it may grow by
_OWN_MAPPING_BYTES = 128 << 10  # memory in pieces of this size or more is a mapping each (mallopt(3))
_TAKING_IN = 0.01  # of a core, of the records, by the thread that looks at what is newest as well
ROOT = Path(__file__).resolve().parent.parent


def soaked(hours: float) -> dict[str, Any]:
    """What came of so many hours, run in a process of its own."""
    command = [sys.executable, "-m", "tests.soak", str(hours)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


@pytest.mark.long
def test_half_a_minute_of_the_machine_is_read_explained_and_shown() -> None:
    outcome = soaked(1 / 120)
    assert outcome["failure"] == ""
    assert outcome["lost"] == 0
    assert outcome["forked"] == pytest.approx(30e9 / TICK_NS * FORKS, rel=0.05)
    assert outcome["verdict"].startswith("Input-bound")
    assert LINE in outcome["verdict"]
    assert outcome["frames"] >= 5
    assert len(outcome["samples"]) >= 90


@pytest.mark.long
@pytest.mark.xdist_group("a day")
@pytest.mark.timeout(_PATIENCE_S + 60)
def test_a_day_takes_no_more_at_its_end_than_after_its_first_tenth() -> None:
    outcome = soaked(HOURS)
    samples = outcome.pop("samples")
    early, late = samples[10:30], samples[80:]
    for name in ("memory", "descriptors", "mappings", "threads"):
        print(name, [max(one[name] for one in part) for part in (early, late)])
    last = samples[-1]
    share = {name: last[name] / last["hours"] / 3600 for name in ("taking_in_s", "reader_s")}
    share["explaining_s"] = last["explaining_s"] / last["real_s"]  # its pace is that of the true clock
    print(share, outcome)
    assert outcome["failure"] == ""
    assert outcome["lost"] == 0
    assert LINE in outcome["verdict"]
    grown = {
        name: max(one[name] for one in late) - max(one[name] for one in early)
        for name in ("memory", "descriptors", "mappings", "threads")
    }
    assert grown["memory"] <= _MEMORY_BYTES, grown
    assert grown["descriptors"] <= 2, grown
    assert grown["mappings"] <= 16 + max(grown["memory"], 0) / _OWN_MAPPING_BYTES, grown
    assert grown["threads"] <= 0, grown
    assert share["taking_in_s"] <= LOOK_SHARE + _TAKING_IN
    assert share["explaining_s"] <= FIRST_SHARE
    for name, each in (("explaining_s", "explained"), ("taking_in_s", "hours"), ("reader_s", "hours")):
        before, after = (_rise(part, name) / _rise(part, each) for part in (samples[10:30], samples[-20:]))
        print(name, each, before, after)
        assert after <= 2 * before, f"{name}: it costs more and more"


def _rise(part: list[dict[str, float]], name: str) -> float:
    return part[-1][name] - part[0][name]
