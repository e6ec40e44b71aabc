"""/metrics of a daemon with real probes: a program's own counts, a real Prometheus, a cluster's names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import needed
from tests.ebpf.recording import HERE, PROGRAMS
from tests.rootless_support import environment
from tests.scraping import families, free_port, scraped
from tests.serving import calling, marks_go_on, serving
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf
CLUSTER = {"RANK": "2", "WORLD_SIZE": "4", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}


def _samples(port: int, name: str) -> list[Any]:
    return [one for family in families(port) for one in family.samples if one.name == name]


def test_counts_are_the_programs_own(tmp_path: Path) -> None:
    needed("prometheus_client")
    port, log = free_port(), tmp_path / "self.jsonl"
    with serving(tmp_path, "--keep-dir", "", "--metrics", str(port)) as daemon:
        env = environment(tmp_path) | {"SELF_LOG": str(log), "SIMGPU_LAUNCH_NS": "0"}
        env["PYTHONPATH"] = os.pathsep.join([str(PROGRAMS), str(HERE.parent / "simgpu_programs")])
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / "python_counts.py"), "300"],
            env=env,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        marks_go_on(daemon, 3)
        said = [json.loads(line) for line in log.read_text().splitlines()]
        told: dict[int, Counter[str]] = {line["pid"]: Counter() for line in said}
        for one in _samples(port, "gputop_cuda_calls_total"):
            pid = int(one.labels["pid"])
            if pid in told:
                told[pid][one.labels["api"]] += int(one.value)
        assert len(said) == 3
        for line in said:
            assert {api: told[line["pid"]][api] for api in line["made"]} == line["made"]
        lost = _samples(port, "gputop_lost_events_total")
        assert sum(one.value for one in lost) == 0
        assert all(one.value > 0 for one in _samples(port, "gputop_probes_active"))


def test_a_process_is_named_as_its_cluster_names_it(tmp_path: Path) -> None:
    needed("prometheus_client")
    port = free_port()
    with (
        serving(tmp_path, "--keep-dir", "", "--metrics", str(port)) as daemon,
        calling(tmp_path, 100, 0.001, env=CLUSTER) as pid,
    ):
        marks_go_on(daemon, 3)
        infos = {one.labels["pid"]: one.labels for one in _samples(port, "gputop_process_info")}
        told = [infos[str(pid)][name] for name in ("rank", "world_size", "job_kind", "job_id")]
        assert told == ["2", "4", "slurm", "4711"]


@pytest.mark.long
def test_a_real_prometheus_scrapes_it_and_joins_who_it_is(tmp_path: Path) -> None:
    port = free_port()
    with (
        serving(tmp_path, "--keep-dir", "", "--metrics", str(port)),
        calling(tmp_path, 1_000_000, 0.002) as pid,
        scraped(tmp_path, port) as prometheus,
    ):
        rate = f'rate(gputop_cuda_calls_total{{pid="{pid}",api="cudaMemset"}}[10s])'
        wait_until(lambda: prometheus.ask(rate), "two scrapes")
        assert [row["value"][1] for row in prometheus.ask('up{job="gputop"}')] == ["1"]
        time.sleep(3)
        (row,) = prometheus.ask(f"{rate} * on(pid) group_left(name, user) gputop_process_info")
        assert row["metric"]["user"] == "root"
        assert float(row["value"][1]) > 10
        quantile = (
            'histogram_quantile(0.5, rate(gputop_cuda_call_duration_seconds_bucket{class="copy"}[10s]))'
        )
        found = [row for row in prometheus.ask(quantile) if row["metric"].get("pid") == str(pid)]
        assert all(1e-7 < float(row["value"][1]) < 1 for row in found)
        assert found


def test_metrics_for_other_machines_need_a_token_or_tls(tmp_path: Path) -> None:
    from tests.cli_support import run

    done = run("serve", "--metrics", "0.0.0.0:9400", "--socket", str(tmp_path / "s"))
    assert done.returncode == 2
    assert "--token-file or --certificate" in done.stderr
