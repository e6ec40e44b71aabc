"""deploy/'s dashboard and rules over a real Prometheus that scrapes a daemon with real probes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.ebpf.recording import HERE
from tests.gputop_command import GPUTOP
from tests.rootless_support import environment
from tests.scraping import Prometheus, free_port, scraped
from tests.serving import serving
from tests.waiting import HANGS_S, wait_until

pytestmark = [pytest.mark.ebpf, pytest.mark.long]
DEPLOY = HERE.parents[1] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
CLUSTER = {"RANK": "3", "WORLD_SIZE": "4", "SLURM_JOB_ID": "4711"}
# asks for what no GPU has, again and again
FAILS = """
import ctypes, time
from cuda import Cuda
c = Cuda(); p = ctypes.c_void_p()
while True:
    assert c.Malloc(ctypes.byref(p), ctypes.c_size_t(1 << 60)) != 0
    time.sleep(0.02)
"""


@contextmanager
def _programs(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One whose steps wait for their input, with a rank, and one whose calls fail; the first of them."""
    names = ([*GPUTOP, "demo", "numpy-sync", "--alone"], [sys.executable, "-c", FAILS])
    running: list[subprocess.Popen[bytes]] = []
    try:
        for words in names:
            process = subprocess.Popen(words, env=environment(home) | CLUSTER, stdout=subprocess.DEVNULL)
            running.append(process)
        yield running[0]
    finally:
        for process in running:
            process.terminate()
            process.wait(HANGS_S)


def _filled(query: str, instance: str) -> str:
    """As Grafana fills in what it is asked: at least four scrapes."""
    return query.replace("$__rate_interval", "1m").replace("$instance", instance)


def _targets() -> list[tuple[str, dict[str, str]]]:
    return [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel["targets"]]


def _labels(text: str) -> set[str]:
    """Those that queries group by, join on and match, and that texts name."""
    lists = re.findall(r"\b(?:by|on|group_left) ?\(([\w, ]+)\)", text)
    one_by_one = re.findall(r'[{ ](\w+)=~?\\?"|{{(\w+)}}|\$labels\.(\w+)', text)
    return {name.strip() for names in lists for name in names.split(",")} | {
        "".join(one) for one in one_by_one
    }


def _wait_for_panels(prometheus: Prometheus, instance: str) -> None:
    for title, target in _targets():
        query = _filled(target["expr"], instance)
        if 'pid="other"' in query:  # there only beyond --max-series: tests/test_dashboard_names.py
            prometheus.ask(query)
            continue
        wait_until(partial(prometheus.ask, query), f"panel '{title}': {query}", every=0.5)


def test_every_panel_has_values_and_every_rule_is_healthy(tmp_path: Path) -> None:
    port = free_port()
    with (
        serving(tmp_path, "--keep-dir", str(tmp_path / "kept"), "--metrics", str(port)),
        _programs(tmp_path),
        scraped(tmp_path, port, rules=DEPLOY / "alerts.yml") as prometheus,
    ):
        (chosen,) = [one for one in DASHBOARD["templating"]["list"] if one["name"] == "instance"]
        ((metric, label),) = re.findall(r"^label_values\((\w+), (\w+)\)$", chosen["query"]["query"])
        wait_until(lambda: prometheus.label_values(label, metric), "the variable's values")
        (instance,) = prometheus.label_values(label, metric)
        assert instance == f"127.0.0.1:{port}"
        # all, one, and two of which one is gone: Grafana makes (a|b) of several, escaped for a string
        escaped = re.escape(instance).replace("\\", "\\\\")
        for value in (chosen["allValue"], escaped, f"(gone:9400|{escaped})"):
            _wait_for_panels(prometheus, value)
        for title, target in _targets():
            rows = prometheus.ask(_filled(target["expr"], chosen["allValue"]))
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"pod"}  # no kubelet here
            # of the machine's other programs no job is known
            assert not rows or any(named <= set(row["metric"]) for row in rows), (title, named, rows)
        asked = _labels((DEPLOY / "alerts.yml").read_text() + json.dumps(DASHBOARD))
        assert len(asked) > 10
        assert asked - {"pod", "exported_pod"} <= set(prometheus.labels())  # no kubelet here
        rules = prometheus.rules()
        assert len(rules) > 5
        assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
