"""What /metrics tells, read by the parsers of prometheus_client: equal to records counted one by one."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.analysis.answer.picture import COLUMN_NS
from gputop.commands.daemon.serve import LOOPBACK
from gputop.serve.metrics.daemon_totals import CLASSES, GRACE_NS, OTHER, DaemonTotals
from gputop.serve.metrics.idle import Idle
from probes import api
from probes.schema import Records, join
from probes.source import MARK, OPEN, Sample
from tests import items as made
from tests.conftest import needed, skip_or_fail
from tests.items import MS, SECOND, START
from tests.stories.installed import program_of_prometheus
from tests.waiting import HANGS_S

NAMES = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMalloc", "cudaStreamSynchronize", "cuLaunchKernel")
calls = st.lists(
    st.tuples(
        st.integers(1, 4),  # process
        st.sampled_from(NAMES),
        st.integers(1, 1 << 36),  # duration
        st.sampled_from([0, 0, 0, 2, 600]),  # result
        st.booleans(),  # nested
        st.integers(0, 5000),  # bytes
        st.integers(0, 4),  # direction
    ),
    max_size=40,
)


def _records(rows: list[Any]) -> Records:
    parts = [made.empty(0)]
    for at, (pid, name, ns, ret, nested, size, way) in enumerate(rows):
        one = made.call(START + at, ns, name, pid=pid, tid=pid, ret=ret, bytes=size, nested=nested)
        one["flags"] |= way << 8
        parts.append(one)
    return join(parts)


def _now() -> Any:
    metrics = needed("gputop.serve.metrics.metric_families")
    return metrics.CurrentFigures(
        {"calls": 3},
        1.5,
        1000,
        77,
        1,
        2,
        3,
        0,
        {0: "GPU-1"},
        {7: {"pid": 7, "name": 'a"b\n\\'}},
        {"version": "1"},
    )


def _told(
    totals: DaemonTotals, idle: Idle | None = None
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample as the parser of OpenMetrics reads it."""
    client = needed("prometheus_client")
    metrics = needed("gputop.serve.metrics.metric_families")
    from prometheus_client.openmetrics.exposition import generate_latest
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(metrics.GputopCollector(totals, idle or Idle(), _now))
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@given(calls, st.integers(1, 9))
def test_counts_sums_and_histograms_are_those_of_the_records_counted_one_by_one(
    rows: list[Any], batch: int
) -> None:
    totals = DaemonTotals(START)
    for first in range(0, len(rows), batch):
        totals.consume(_records(rows[first : first + batch]))
    told = _told(totals)
    expected: Counter[Any] = Counter()
    for pid, name, ns, ret, nested, size, way in rows:
        if nested:
            continue
        row = api.BY_OP[api.OP_OF[name]]
        labels = (("api", name), ("layer", row.layer), ("pid", str(pid)))
        expected["gputop_cuda_calls_total", labels] += 1
        expected["gputop_cuda_call_seconds_total", labels] += ns
        failed = ret not in (0, 600)
        expected["gputop_cuda_call_errors_total", labels] += failed
        kind = CLASSES.get(row.group, "other")
        long = (("class", kind), ("pid", str(pid)))
        expected["gputop_cuda_call_duration_seconds_sum", long] += ns
        for power in range(10, 35, 2):
            key = (("class", kind), ("le", repr((1 << power) / 1e9)), ("pid", str(pid)))
            expected["gputop_cuda_call_duration_seconds_bucket", key] += ns < 1 << power
        key = (("class", kind), ("le", "+Inf"), ("pid", str(pid)))
        expected["gputop_cuda_call_duration_seconds_bucket", key] += 1
        if row.group == "copy" and size and not failed:
            direction = ("h2h", "h2d", "d2h", "d2d", "unknown")[way]
            expected["gputop_cuda_copy_bytes_total", (("direction", direction), ("pid", str(pid)))] += size
        if row.group == "alloc" and size and not failed:
            expected["gputop_cuda_alloc_bytes_total", (("pid", str(pid)),)] += size
    for (name, labels), value in expected.items():
        seconds = name.endswith(("seconds_total", "seconds_sum"))
        assert told[name, labels] == pytest.approx(value / 1e9 if seconds else value), (name, labels)
    counted = {key for key in told if key[0].startswith("gputop_cuda_") and not key[0].endswith("_count")}
    assert counted == set(expected)


def _mark(totals: DaemonTotals, at_ns: int, *pids: int) -> None:
    columns = {"pid": list(pids), "tid": list(pids)}
    zeros = {name: [0] * len(pids) for name in ("off_since", "queued_since", "op", "call_since")}
    totals.consume(Sample(OPEN, at_ns, columns | zeros))
    totals.consume(Sample(MARK, at_ns, {}))


def test_an_ended_process_is_told_for_a_while_and_then_no_more_and_rows_stay_bounded() -> None:
    totals = DaemonTotals(START)
    for generation in range(50):
        pid = 100 + generation
        now = START + generation * GRACE_NS
        totals.consume(made.call(now, 5, pid=pid, tid=pid))
        _mark(totals, now, pid)
        _mark(totals, now + SECOND)
        assert pid in totals.processes
        assert len(totals.processes) <= 3
        assert totals.rows <= 9


def test_beyond_the_most_rows_processes_share_one_whose_sums_only_grow() -> None:
    totals = DaemonTotals(START, most_rows=12)
    before = 0
    for pid in range(1, 60):
        totals.consume(join([made.call(START + pid, 5, name, pid=pid, tid=pid) for name in NAMES[:3]]))
        others = sum(call.count for call in totals.processes.get(OTHER, totals.processes[1]).calls.values())
        if OTHER in totals.processes:
            assert others >= before
            before = others
    assert sum(call.count for row in totals.processes.values() for call in row.calls.values()) == 59 * 3
    assert len(totals.processes) < 8
    assert any(dict(labels).get("pid") == "other" for _, labels in _told(totals))


def test_calls_of_days_are_added_up_exactly() -> None:
    totals = DaemonTotals(START)
    long = (1 << 53) - 1
    for _ in range(3):
        totals.consume(join([made.call(START, long), made.call(START, 1)]))
    (process,) = totals.processes.values()
    (call,) = process.calls.values()
    assert call.sum_ns == 3 * (long + 1)


def test_names_of_processes_cannot_break_out_of_their_label() -> None:
    told = _told(DaemonTotals(START))
    assert told["gputop_process_info", (("name", 'a"b\n\\'), ("pid", "7"))] == 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    client, http = needed("prometheus_client"), needed("gputop.serve.metrics.metrics_http")
    started: list[Any] = []

    def make(**more: Any) -> Any:
        totals = DaemonTotals(START)
        totals.consume(made.call(START, 5 * MS, pid=9, tid=9))
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(
            needed("gputop.serve.metrics.metric_families").GputopCollector(totals, Idle(), _now)
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        healthy = more.pop("healthy", lambda: True)
        made_server = http.MetricsServer(http.Address("127.0.0.1", port, **more), registry, healthy)
        made_server.start()
        started.append(made_server)
        return made_server, port

    yield make
    for one in started:
        one.stop()


def _get(url: str, *, token: str = "", context: ssl.SSLContext | None = None, host: str = "") -> str:
    said = {"Authorization": f"Bearer {token}" if token else "", "Host": host}
    request = urllib.request.Request(url, headers={name: value for name, value in said.items() if value})
    with urllib.request.urlopen(request, timeout=HANGS_S, context=context) as answer:
        return str(answer.read().decode())


def test_a_token_is_requested_where_there_is_one(server: Any) -> None:
    _, port = server(token="sesame")
    assert "gputop_cuda_calls_total" in _get(f"http://127.0.0.1:{port}/metrics", token="sesame")
    for wrong in ("", "open"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            _get(f"http://127.0.0.1:{port}/metrics", token=wrong)


def test_a_page_whose_name_was_made_to_point_here_is_told_nothing(server: Any) -> None:
    _, port = server(names=LOOPBACK)
    url = f"http://127.0.0.1:{port}/metrics"
    for host in ("", f"localhost:{port}", "localhost:9999", f"[::1]:{port}"):  # also through a tunnel
        assert "gputop_cuda_calls_total" in _get(url, host=host)
    for host in (f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            _get(url, host=host)


def test_only_metrics_and_health_are_there(server: Any) -> None:
    health = [True]
    _, port = server(healthy=lambda: health[0])
    with pytest.raises(urllib.error.HTTPError, match="404"):
        _get(f"http://127.0.0.1:{port}/etc/passwd")
    assert _get(f"http://127.0.0.1:{port}/healthz") == ""
    health[0] = False
    with pytest.raises(urllib.error.HTTPError, match="503"):
        _get(f"http://127.0.0.1:{port}/healthz")


def test_with_a_certificate_it_is_tls_and_nothing_else(server: Any, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        skip_or_fail("no openssl to make a certificate: make setup")
    pem = tmp_path / "both.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(pem), "-out", str(tmp_path / "cert")]
    subprocess.run([*words, *more], check=True, capture_output=True)
    pem.write_text(pem.read_text() + (tmp_path / "cert").read_text())
    _, port = server(certificate=str(pem))
    context = ssl.create_default_context(cafile=str(tmp_path / "cert"))
    assert "gputop_cuda_calls_total" in _get(f"https://127.0.0.1:{port}/metrics", context=context)
    with pytest.raises(OSError, match=r".+"):
        _get(f"http://127.0.0.1:{port}/metrics")


def test_connections_that_say_nothing_do_not_keep_others_waiting(server: Any) -> None:
    _, port = server()
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
    assert "gputop_cuda_calls_total" in _get(f"http://127.0.0.1:{port}/metrics")
    for one in silent:
        one.close()


def test_who_sends_a_byte_now_and_then_is_cut_off_after_a_while_all_the_same(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = needed("gputop.serve.metrics.metrics_http")
    monkeypatch.setattr(http, "PATIENCE_S", 0.5)
    _, port = server()
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(http.AT_ONCE)]
    begun = time.monotonic()
    open_still = list(slow)
    while open_still:
        assert time.monotonic() - begun < 60, "they keep all others out"
        time.sleep(0.1)  # more often than any wait for a byte lasts
        for one in list(open_still):
            try:
                one.sendall(b"x")
            except OSError:
                open_still.remove(one)
    assert "gputop_cuda_calls_total" in _get(f"http://127.0.0.1:{port}/metrics")
    for one in slow:
        one.close()


def test_promtool_finds_nothing_to_say(server: Any) -> None:
    promtool = program_of_prometheus("promtool")
    if not promtool:
        skip_or_fail("no promtool: make setup")
    _, port = server()
    text = _get(f"http://127.0.0.1:{port}/metrics")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_idle_time_of_windows_that_overlap_is_counted_once() -> None:
    from dataclasses import replace

    from gputop.analysis.window import Verdict
    from tests import fake_reports as reports

    idle = Idle()
    report = replace(reports.report(reports.finding()), duration_ns=10 * SECOND)
    whole = sum(gpu.idle.lower for gpu in report.gpus)
    for end in (10, 14, 14, 18, 40):  # new in each: 10, 4, 0, 4 and all of it
        idle.consume(Verdict(report, START + end * SECOND, START, reports.lanes()))
    assert sum(row.idle for row in idle.gpus.values()) == pytest.approx(whole * (1 + 0.4 + 0.4 + 1))
    assert np.isclose(sum(idle.causes.values()), report.findings[0].loss.lower * 2.8)


def test_idle_time_counts_where_it_was_in_a_window() -> None:
    """All of it is in the first half of each window: what overlaps the one before holds none that is new."""
    from dataclasses import replace

    from gputop.analysis.report_update import Counted, OfGpu, Row
    from gputop.analysis.window import Verdict
    from tests import fake_reports as reports

    idle, columns = Idle(), 200
    report = replace(reports.report(), duration_ns=10 * SECOND)
    (gpu,) = report.gpus
    half = np.repeat([1, 0], columns // 2)
    for end, proved in ((10, half), (15, half), (20, half[::-1])):
        first = (START + (end - 10) * SECOND) // COLUMN_NS
        figures = {
            OfGpu(gpu.label, Row.PROVED): proved,
            OfGpu(gpu.label, Row.SPAN): np.ones(columns, np.int64),
        }
        counted = Counted(first, columns, figures)
        idle.consume(Verdict(report, START + end * SECOND, START, reports.lanes(), counted=counted))
    (row,) = idle.gpus.values()
    assert row.idle == pytest.approx(2 * gpu.idle.lower, rel=0.02)
    assert row.observed == pytest.approx(2 * gpu.span_ns, rel=0.02)
