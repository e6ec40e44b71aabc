"""Calls that fail under real probes: their counts, and what was launched before a context broke."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ebpf.recording import Workshop

pytestmark = [pytest.mark.ebpf]


def test_each_failed_call_has_its_error_and_its_line(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    run = workshop.python("failing_calls.py", SIMGPU_MEMORY_MIB="1024")
    (said,) = run.said
    failed = {
        (one["api"], one["code"], one["line"]["line"]): one for one in run.process(said["pid"])["failures"]
    }
    counted = {(api, code, line): count for api, code, line, count in said["failed"]}
    assert {key: one["count"] for key, one in failed.items()} == counted
    assert all(one["error"] for one in failed.values())


@pytest.mark.parametrize("number", [7, 23])
@pytest.mark.mainly("7")
def test_the_launch_that_broke_the_context_is_among_those_before_the_error(
    tmp_path: Path, number: int
) -> None:
    workshop = Workshop(tmp_path)
    run = workshop.python("failing_calls.py", "crash", SIMGPU_KERNEL_FAULT=f"{number}:700")
    (said,) = run.said
    found = run.process(said["pid"])["failures"]
    assert sum(one["count"] for one in found) == said["broken"]
    assert {one["error"] for one in found} == {"cudaErrorIllegalAddress"}
    launches = [launch["kernel"] for one in found for launch in one["launches"]]
    # each launch has a number of its own as its kernel; the program waits after every fifth
    assert number in launches
    assert all((launch - 1) // 5 == (number - 1) // 5 for launch in launches)
