"""A real Prometheus that scrapes a daemon of a test, and what it answers."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.conftest import needed, skip_or_fail
from tests.stories.installed import program_of_prometheus
from tests.waiting import HANGS_S, wait_until


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def families(port: int) -> list[Any]:
    """What a page of /metrics tells, as the parser of OpenMetrics reads it."""
    needed("prometheus_client")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=HANGS_S) as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        """Remember where it answers."""
        self.port = port

    def _get(self, path: str, **words: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=HANGS_S) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{words}: {error.read().decode()}") from error

    def ask(self, query: str) -> list[Any]:
        """The rows of a query; one that it refuses fails the test with its own words."""
        rows: list[Any] = self._get("query", query=query)["result"]
        return rows

    def label_values(self, label: str, metric: str) -> list[str]:
        """What Grafana's ``label_values(metric, label)`` lists."""
        return list(self._get(f"label/{label}/values", **{"match[]": metric}))

    def labels(self) -> list[str]:
        """The names of all labels that it has seen."""
        return list(self._get("labels"))

    def rules(self) -> list[dict[str, Any]]:
        """The rules that it evaluates, each with its health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as answer:
                return int(answer.status) == 200
        except OSError:
            return False


@contextmanager
def scraped(
    home: Path,
    port: int,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    honor: bool = False,
    jobs: Sequence[str] = ("gputop",),
    rules: Path | None = None,
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes 127.0.0.1 each second.

    Args:
        home: Where its data lie.
        port: What it scrapes.
        labels: Those that it gives the target, as service discovery does.
        honor: ``honor_labels``.
        jobs: As which it scrapes it; each is a target of its own.
        rules: A file of rules that it evaluates each second.
    """
    program = program_of_prometheus("prometheus")
    if not program:
        skip_or_fail("no prometheus: make setup")
    needed("prometheus_client")
    target = {"targets": [f"127.0.0.1:{port}"], "labels": dict(labels)}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [
            {"job_name": name, "honor_labels": honor, "static_configs": [target]} for name in jobs
        ],
        "rule_files": [str(rules)] if rules is not None else [],
    }
    (home / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    own = Prometheus(free_port())
    process = subprocess.Popen(
        [
            program,
            f"--config.file={home / 'prometheus.yml'}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address=127.0.0.1:{own.port}",
            "--log.level=error",
        ]
    )
    try:
        wait_until(own.ready, "Prometheus")
        yield own
    finally:
        process.terminate()
        process.wait(HANGS_S)
