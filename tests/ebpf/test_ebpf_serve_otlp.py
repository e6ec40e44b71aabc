"""``gputop serve --otlp`` with real probes: a collector gets a program's own counts; none is no matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.collector import Received, receiving
from tests.conftest import needed
from tests.ebpf.recording import HERE, PROGRAMS
from tests.rootless_support import environment
from tests.serving import Daemon, marks_go_on, serving
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf


def counted(home: Path) -> list[dict[str, Any]]:
    """What three processes say of the calls that they have made."""
    log = home / "self.jsonl"
    env = environment(home) | {"SELF_LOG": str(log), "SIMGPU_LAUNCH_NS": "0"}
    env["PYTHONPATH"] = os.pathsep.join([str(PROGRAMS), str(HERE.parent / "simgpu_programs")])
    command = [sys.executable, str(PROGRAMS / "python_counts.py"), "300"]
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]


def told(received: Received) -> dict[int, Counter[str]]:
    """Calls by process and function, of the newest request."""
    found: dict[int, Counter[str]] = {}
    for (name, labels), value in received.newest().items():
        if name == "gputop_cuda_calls_total":
            by = dict(labels)
            found.setdefault(int(by["pid"]), Counter())[by["api"]] += int(value)
    return found


def errors(daemon: Daemon) -> list[str]:
    """What it has said."""
    return (daemon.home / "daemon.err").read_text().splitlines()


def test_counts_are_the_programs_own_and_the_last_ones_come_with_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("gputop.serve.metrics.otlp")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
    with receiving() as received:
        with serving(tmp_path, "--keep-dir", "", "--otlp", received.address) as daemon:
            wait_until(lambda: received.requests, "the first request")
            said = counted(tmp_path)
            marks_go_on(daemon, 3)
        assert len(said) == 3
        for line in said:
            mine = told(received)[line["pid"]]
            assert {api: mine[api] for api in line["made"]} == line["made"]
        assert len(errors(daemon)) == 1


@pytest.mark.long
def test_without_a_collector_it_says_so_once_observes_and_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("gputop.serve.metrics.otlp")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
    with receiving() as received:
        address = received.address  # nobody is there any more when the daemon starts
    with serving(tmp_path, "--keep-dir", "", "--otlp", address) as daemon:
        wait_until(lambda: len(errors(daemon)) > 1, "the sentence")
        said = counted(tmp_path)
        marks_go_on(daemon, 3)
        assert daemon.status()["calls"] >= sum(sum(line["made"].values()) for line in said)
    assert daemon.process.returncode == 0
    (sentence,) = [line for line in errors(daemon) if "metrics do not reach" in line]
    assert f"{address}/v1/metrics: Connection refused" in sentence
