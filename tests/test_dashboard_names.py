"""Names in deploy's dashboard where others' labels stand beside gputop's: a real Prometheus, a known page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gputop.serve.metrics.daemon_totals import OTHER, DaemonTotals
from gputop.serve.metrics.idle import Idle
from tests import items as made
from tests.conftest import needed
from tests.items import MS, START
from tests.scraping import free_port, scraped
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("prometheus")  # which is waited for: rather at the beginning of a run
_PANELS = json.loads((Path(__file__).resolve().parents[1] / "deploy" / "grafana.json").read_text())["panels"]
_CALLS = next(panel["targets"] for panel in _PANELS if panel["title"] == "CUDA calls a second")
_POD = {
    "namespace": "monitoring",
    "pod": "gputop-x7k2p",
    "container": "gputop",
}  # as a cluster labels targets
_JOINED = [one["expr"] for panel in _PANELS for one in panel["targets"] if "group_left" in one["expr"]]

_OTHERS = [one["expr"] for panel in _PANELS for one in panel["targets"] if 'pid="other"' in one["expr"]]


@contextmanager
def _page() -> Iterator[int]:
    """What gputop tells of process 7, of a pod and a job, and of those beyond --max-series; its port."""
    client = needed("prometheus_client")
    metrics = needed("gputop.serve.metrics.metric_families")
    totals = DaemonTotals(START, most_rows=2)
    totals.consume(made.call(START, MS, "cudaMemcpyAsync", pid=7, tid=7))
    totals.consume(made.call(START, MS, "cudaMemcpyAsync", pid=8, tid=8))
    assert OTHER in totals.processes
    facts = {
        "pid": 7,
        "name": "python",
        "pod": "trainer-0",
        "namespace": "team-a",
        "job_id": "4711",
        "rank": 3,
    }
    now = metrics.CurrentFigures({"calls": 0}, 0.0, 0, 0, 0, 0, 0, 0, {}, {7: facts}, {"version": "1"})
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(metrics.GputopCollector(totals, Idle(), lambda: now))
    port = free_port()
    server, thread = client.start_http_server(port, "127.0.0.1", registry)
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _filled(query: str) -> str:
    return query.replace("$__rate_interval", "1m").replace("$instance", ".*")


@pytest.mark.parametrize("honor", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_process_has_its_own_pod_where_targets_have_one_too(tmp_path: Path, honor: bool) -> None:
    query = _filled(_CALLS[0]["expr"])
    with _page() as port, scraped(tmp_path, port, labels=_POD, honor=honor) as prometheus:
        wait_until(partial(prometheus.ask, query), "two scrapes", every=0.2)
        (row,) = prometheus.ask(query)
        named = {key: row["metric"].get(key) for key in ("pid", "name", "pod", "job_id", "rank")}
        assert named == {"pid": "7", "name": "python", "pod": "trainer-0", "job_id": "4711", "rank": "3"}


def test_calls_of_processes_without_series_of_their_own_are_shown(tmp_path: Path) -> None:
    with _page() as port, scraped(tmp_path, port) as prometheus:
        told: list[Any] = []
        for target in _CALLS:
            wait_until(partial(prometheus.ask, _filled(target["expr"])), target["expr"], every=0.2)
            told += [row["metric"].get("name", "other") for row in prometheus.ask(_filled(target["expr"]))]
        assert sorted(told) == ["other", "python"]
        assert len(_OTHERS) == 2
        for query in _OTHERS:
            assert prometheus.ask(_filled(query))


def test_a_process_that_is_told_twice_fails_no_panel(tmp_path: Path) -> None:
    # two jobs that scrape the same, or a receiver of OTLP that still has the name from before an exec
    both = {"instance": "node1"}
    with _page() as port, scraped(tmp_path, port, labels=both, jobs=("gputop", "again")) as prometheus:
        wait_until(
            lambda: len(prometheus.ask("count_over_time(gputop_process_info[1m]) > 1")) == 2, "scrapes"
        )
        for query in _JOINED:
            prometheus.ask(_filled(query))
