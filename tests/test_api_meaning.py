"""What a function means is reported in its row of the table, and nowhere else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.analysis.evidence.api_classes import ApiTable
from probes import api
from probes.api_semantics import Argument, Role, Trait

ROOT = Path(__file__).resolve().parents[1]
# of what a role says, what the argument has to be that the proof reads
NEEDS: dict[Role, Argument] = {
    Role.PROVE_EVENT: "event",
    Role.RECORD: "event",
    Role.WAIT: "event",
    Role.HOST_RANGE: "host",
    Role.HOST_FREE: "host",
    Role.SET_DEVICE: "device",
}


def made_up(group: str, row: str) -> dict[str, Any]:
    """What everybody makes of a function with one row more in the table."""
    words = [sys.executable, "-m", "tests.made_up_function", group, *row.split()]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    assert said.pop("row of its probe")
    return said


def test_a_new_wait_is_one_row_and_proves_the_gpu_idle() -> None:
    assert made_up("sync", "cudaEverythingSynchronize role=prove_device minimal") == {
        "minimal": True,
        "role": "PROVE_DEVICE",
        "group": "SYNC",
        "traits": ["MINIMAL"],
        "devices": [[0]],
        "gaps": [[1000, 3000]],
    }


def test_a_new_launch_is_one_row_and_work_by_its_group() -> None:
    assert made_up("launch", "cudaLaunchSomething stream=rdi kernel=rsi runs") == {
        "minimal": False,
        "role": "ENQUEUE",
        "group": "LAUNCH",
        "traits": ["RUNS"],
        "devices": [[0]],
        "gaps": [],
    }


def test_a_new_choice_of_a_device_is_one_row() -> None:
    said = made_up("device", "cudaChooseSomeDevice device=rdi role=set_device")
    assert (said["role"], said["devices"]) == ("SET_DEVICE", [[3]])


@pytest.mark.parametrize("row", [row for row in api.TABLE if row.role in NEEDS], ids=lambda row: row.name)
def test_a_role_that_reads_an_argument_names_it(row: api.Api) -> None:
    assert (row.argument, bool(row.aux)) == (NEEDS[row.role], True)


@pytest.mark.parametrize(
    "row", [row for row in api.TABLE if row.role in (Role.CREATE_STREAM, Role.CREATE_EVENT)]
)
def test_what_makes_a_handle_keeps_the_one_it_made(row: api.Api) -> None:
    assert row.stream == "*rdi"


def test_rows_of_one_name_mean_the_same() -> None:
    for row in api.TABLE:
        known = api.BY_OP[api.OP_OF[row.name]]
        assert (row.role, row.traits, row.argument) == (known.role, known.traits, known.argument), row.name


def test_a_session_s_own_list_is_matched_by_name_and_else_by_group() -> None:
    table = ApiTable(
        [
            ["cudaStreamSynchronize", "runtime", "sync"],
            ["cudaLaunchOfOld", "runtime", "launch"],
            ["cudaWaitOfOld", "runtime", "sync"],
            ["cudaFree", "runtime"],
        ]
    )
    assert table.role.tolist() == [Role.PROVE_STREAM, Role.ENQUEUE, Role.OTHER, Role.OTHER]
    assert table.has(table.role * 0 + 3, Trait.WAITS).all()


def test_nobody_else_asks_for_functions_by_name() -> None:
    named = re.compile(r'"(?:' + "|".join(api.NAMES) + r')(?:_v\d)?"')
    folders = [ROOT / "probes", *(ROOT / "gputop" / room for room in ("engine", "explain", "playback", "ui"))]
    files = [file for folder in folders for file in folder.rglob("*.py") if file.name != "api.py"]
    assert files
    assert [str(file) for file in files if named.search(file.read_text())] == []
