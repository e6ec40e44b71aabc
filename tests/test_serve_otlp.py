"""What ``gputop serve --otlp`` sends is what /metrics tells; who does not take it keeps nobody waiting."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.errors import CommandError
from gputop.serve.metrics.daemon_totals import DaemonTotals
from gputop.serve.metrics.idle import Idle
from probes.schema import join
from tests import items as made
from tests.collector import receiving
from tests.conftest import needed, skip_or_fail
from tests.items import MS, SECOND, START
from tests.scraping import free_port
from tests.stories.installed import cache
from tests.waiting import HANGS_S, wait_until

NAMES = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMalloc", "cudaStreamSynchronize", "cuLaunchKernel")
SOON_S = 0.05
PATIENCE_S = 120.0


def now() -> Any:
    """What stands beside the counts."""
    metrics = needed("gputop.serve.metrics.metric_families")
    return metrics.CurrentFigures(
        lost={"calls": 3}, own_cpu_s=1.5, own_bytes=1000, probes=77, kept=1, not_kept=2, clients=3,
        budget_step=0, uuids={0: "GPU-1"}, processes={7: {"pid": 7, "name": 'a"b\n\\', "rank": 3}},
        build={"version": "1"}, sent=(4, 5),
    )  # fmt: skip


def counted(processes: int = 3) -> DaemonTotals:
    """Calls of all lengths by some processes."""
    totals = DaemonTotals(START)
    for pid in range(1, processes + 1):
        rows = [
            made.call(
                START + at, 3**at + pid, NAMES[at % 5], pid=pid, tid=pid, ret=2 * (at % 7 == 0), bytes=at
            )
            for at in range(20)
        ]
        totals.consume(join(rows))
    return totals


def explained() -> Idle:
    """Idle time with a cause, and steps."""
    from gputop.analysis.window import Verdict
    from tests import fake_reports as reports

    idle = Idle()
    report = replace(reports.report(reports.finding()), duration_ns=10 * SECOND)
    idle.consume(Verdict(report, START + 10 * SECOND, START, reports.lanes()))
    for ns in (MS, 70 * MS, 200 * SECOND):
        idle.consume_step(7, ns)
    return idle


def collector_of(totals: DaemonTotals, idle: Idle | None = None) -> Any:
    """What makes the families."""
    return needed("gputop.serve.metrics.metric_families").GputopCollector(totals, idle or Idle(), now)


def scraped(collector: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of /metrics as the parser of OpenMetrics reads it."""
    client = needed("prometheus_client")
    from prometheus_client.openmetrics.exposition import generate_latest
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def sender_to(address: str, collect: Callable[[], Any], told: list[str], every_s: float = SOON_S) -> Any:
    """One that says what it says into a list."""
    otlp = needed("gputop.serve.metrics.otlp")
    who = {"service.name": "gputop", "service.instance.id": "node7"}
    return otlp.Sender(otlp.destination(address, every_s), collect, who, told.append)


def test_every_sample_of_metrics_is_sent_with_its_name_labels_and_value_and_no_other() -> None:
    needed("gputop.serve.metrics.otlp")
    collector = collector_of(counted(), explained())
    with receiving() as received:
        sender = sender_to(received.address, collector.collect, told := [])
        sender.start()
        wait_until(lambda: received.requests, "a request")
        sender.stop()
    expected = scraped(collector)
    assert received.newest() == pytest.approx(expected)
    assert len({name for name, _ in expected}) > 25
    assert told == []
    (resource,) = received.requests[0].resource_metrics
    who = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (who["service.name"], who["service.instance.id"]) == ("gputop", "node7")


def test_values_count_from_one_moment_on_and_are_of_another() -> None:
    needed("gputop.serve.metrics.otlp")
    with receiving() as received:
        before = time.time_ns()
        sender = sender_to(received.address, collector_of(counted()).collect, [])
        sender.start()
        wait_until(lambda: len(received.requests) > 2, "three requests")
        sender.stop()
    times = []
    for request in received.requests:
        (resource,) = request.resource_metrics
        points = [
            point
            for metric in resource.scope_metrics[0].metrics
            for point in getattr(metric, metric.WhichOneof("data")).data_points
        ]
        (start,) = {point.start_time_unix_nano for point in points} - {0}  # what does not add up has none
        (now_ns,) = {point.time_unix_nano for point in points}
        times.append((start, now_ns))
    assert len({start for start, _ in times}) == 1
    assert all(before <= start < now_ns for start, now_ns in times)
    assert [now_ns for _, now_ns in times] == sorted(now_ns for _, now_ns in times)


@pytest.mark.parametrize("status", [404, 401, 302, 500])
def test_a_collector_that_refuses_is_told_of_once_and_again_when_it_does_not(status: int) -> None:
    needed("gputop.serve.metrics.otlp")
    totals = counted()
    with receiving() as received:
        received.status = status
        sender = sender_to(received.address, collector_of(totals).collect, told := [])
        sender.start()
        wait_until(lambda: sender.failed > 3, "some tries")
        (sentence,) = told
        assert f"127.0.0.1:{received.port}/v1/metrics: it answers {status}" in sentence
        totals.consume(made.call(START + SECOND, 5, pid=9, tid=9))
        received.status = 200
        wait_until(lambda: len(told) > 1, "the news")
        sender.stop()
    assert "again" in told[1]
    assert len(told) == 2
    labels = (("api", "cudaLaunchKernel"), ("layer", "runtime"), ("pid", "9"))
    assert received.newest()["gputop_cuda_calls_total", labels] == 1


def test_nobody_there_is_one_sentence_and_what_was_counted_meanwhile_comes_later(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("gputop.serve.metrics.otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # so long one sending is tried
    port = free_port()
    totals = counted()
    sender = sender_to(f"http://127.0.0.1:{port}", collector_of(totals).collect, told := [])
    sender.start()
    wait_until(lambda: told, "a sentence")
    assert "Connection refused" in told[0]
    totals.consume(made.call(START + SECOND, 5, pid=9, tid=9))
    with receiving(port) as received:
        wait_until(lambda: received.requests, "a request")
        sender.stop()
    assert len(told) <= 2
    assert any(dict(labels).get("pid") == "9" for _, labels in received.newest())
    assert capfd.readouterr() == ("", "")


def test_a_collector_that_never_answers_keeps_neither_counting_nor_the_end_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    otlp = needed("gputop.serve.metrics.otlp")
    monkeypatch.setattr(otlp, "LAST_S", 0.2)
    totals = counted()
    with receiving() as received:
        received.status = 0
        sender = sender_to(received.address, collector_of(totals).collect, [])
        sender.start()
        assert received.came.wait(PATIENCE_S)
        done = threading.Event()

        def count() -> None:
            totals.consume(made.call(START + SECOND, 5, pid=9, tid=9))
            done.set()

        threading.Thread(target=count, daemon=True).start()
        assert done.wait(PATIENCE_S), "counts are held while a request hangs"
        begun = time.monotonic()
        sender.stop()
        assert time.monotonic() - begun < 5
        assert received.tried == 1


@pytest.mark.slow
def test_a_request_that_hangs_is_given_up_and_there_is_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed("gputop.serve.metrics.otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with receiving() as received:
        received.status = 0
        sender = sender_to(received.address, collector_of(counted()).collect, told := [])
        sender.start()
        wait_until(lambda: told, "a sentence")
        assert "does not answer in time" in told[0]
        names = [one.name for one in threading.enumerate()]
        assert names.count("gputop-otlp") == 1
        assert received.tried <= 4
        received.over.set()
        sender.stop()


def test_series_stay_bounded_however_many_processes_come() -> None:
    needed("gputop.serve.metrics.otlp")
    totals = DaemonTotals(START, most_rows=50)
    with receiving() as received:
        sender = sender_to(received.address, collector_of(totals).collect, [])
        for pid in range(1, 2_000):
            totals.consume(join([made.call(START + pid, 5, name, pid=pid, tid=pid) for name in NAMES]))
        sender.start()
        wait_until(lambda: received.requests, "a request")
        sender.stop()
    told = received.newest()
    counts = {labels: value for (name, labels), value in told.items() if name == "gputop_cuda_calls_total"}
    assert len(counts) < 60
    assert sum(counts.values()) == 1_999 * len(NAMES)
    assert any(dict(labels)["pid"] == "other" for labels in counts)


def test_what_cannot_be_made_is_reported_and_the_next_comes() -> None:
    needed("gputop.serve.metrics.otlp")
    collector = collector_of(counted())
    broken = [True]

    def collect() -> Any:
        if broken[0]:
            raise RuntimeError("dictionary changed size during iteration")
        return collector.collect()

    with receiving() as received:
        sender = sender_to(received.address, collect, told := [])
        sender.start()
        wait_until(lambda: told, "a sentence")
        broken[0] = False
        wait_until(lambda: received.requests, "a request")
        sender.stop()
    assert "gputop failed (-v shows the error)" in told[0]


def test_a_real_victoriametrics_has_the_names_labels_and_values_of_metrics(tmp_path: Path) -> None:
    program = cache() / "victoria" / "usr" / "bin" / "victoria-metrics"
    if not program.exists():
        skip_or_fail("no victoria-metrics: make setup")
    needed("gputop.serve.metrics.otlp")
    port = free_port()
    collector = collector_of(counted(), explained())
    words = [
        str(program), f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={tmp_path / 'data'}",
        "-opentelemetry.usePrometheusNaming", "-opentelemetry.promoteScopeMetadata=false",
        "-opentelemetry.promoteAllResourceAttributes=false", "-search.latencyOffset=0s",
        "-memory.allowedBytes=64MB", "-loggerLevel=ERROR",
    ]  # fmt: skip
    process = subprocess.Popen(words)
    try:
        wait_until(lambda: _answer(port, "/health"), "VictoriaMetrics")
        sender = sender_to(f"http://127.0.0.1:{port}/opentelemetry/v1/metrics", collector.collect, told := [])
        sender.start()
        wait_until(lambda: sender.sent, "a sending")
        sender.stop()
        assert told == []
        found: dict[Any, float] = {}

        def stored() -> bool:
            _answer(port, "/internal/force_flush")  # what has just come cannot be asked for yet
            query = urllib.parse.urlencode({"match[]": '{__name__=~"gputop.*"}'})
            for line in _answer(port, f"/api/v1/export?{query}").splitlines():
                row = json.loads(line)
                name = row["metric"].pop("__name__")
                found[name, plain(row["metric"].items())] = row["values"][-1]
            return bool(found)

        wait_until(stored, "what was sent")
    finally:
        process.terminate()
        process.wait(HANGS_S)
    expected = {(name, plain(labels)): value for (name, labels), value in scraped(collector).items()}
    assert set(found) == set(expected)
    assert found == pytest.approx(expected)


def plain(labels: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Without labels that are empty, which it does not keep, and bounds as one writes them."""
    told = ((name, repr(float(value)) if name == "le" else value) for name, value in labels if value)
    return tuple(sorted(told))


def _answer(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANGS_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.parametrize("address", ["localhost:4318", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    otlp = needed("gputop.serve.metrics.otlp")
    with pytest.raises(CommandError, match="is not a collector"):
        otlp.destination(address)


def test_a_variable_that_makes_no_sense_is_refused_and_a_password_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    otlp = needed("gputop.serve.metrics.otlp")
    assert otlp.destination("https://me:secret@host/").name == "https://host/v1/metrics"
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "often")
    with pytest.raises(CommandError, match="OTEL_"):
        otlp.destination("http://host")


def test_without_its_packages_one_sentence_says_how_they_are_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gputop.commands.daemon.serve import otlp_destination

    monkeypatch.setitem(sys.modules, "gputop.serve.metrics.otlp", None)
    with pytest.raises(CommandError, match=r"pip install .*opentelemetry-exporter-otlp-proto-http"):
        otlp_destination("http://host")


def test_whoever_does_not_ask_for_it_loads_nothing_of_it() -> None:
    code = (
        "import sys, socket, gputop.commands.daemon.serve\n"
        "from gputop.serve.service import Service, Settings\n"
        "service = Service({'start_ns': 1}, socket.socket(socket.AF_UNIX), Settings('1'), print)\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('opentelemetry', 'requests')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
