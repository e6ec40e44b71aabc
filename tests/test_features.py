"""Each feature has a test that names it, and what no other test names is held here."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from gputop.api import stretches
from gputop.commands.cli import parse
from gputop.commands.daemon.serve import settings_of
from gputop.serve.clients import hub, wire
from gputop.serve.clients.listening import listen
from gputop.serve.metrics.daemon_totals import DaemonTotals
from gputop.serve.metrics.idle import GpuIdleTime, Idle
from probes.schema import join
from tests import fake_frames as fake
from tests import feature_list, inside
from tests import items as made
from tests.conftest import needed
from tests.items import MS, SECOND, START
from tests.screen_support import Shown

RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "numpy-sync.msgpack"


@pytest.mark.slow
def test_every_feature_has_a_test() -> None:
    held = feature_list.held(feature_list.features())
    kinds = {feature.kind for feature in held}
    assert {"command", "flag", "key", "column", "cause", "export", "import", "metric"} <= kinds
    assert [f"{feature.kind} {feature.name}" for feature, test in held.items() if not test] == []
    unknown = feature_list.Feature("flag", "none", (frozenset({"--no-test-".join(("", "names-this"))}),))
    assert feature_list.held([unknown]) == {unknown: ""}


def test_flags_of_the_daemon_are_its_settings() -> None:
    words = "--history 1M --minutes 3 --keep-dir /kept --keep-size 5M --before 7 --after 8 --every 9"
    _name, options = parse(["serve", *words.split(), "--max-series", "200", "--budget", "2%"])
    made_of = settings_of(options)
    assert (made_of.history_bytes, made_of.minutes, made_of.keep_dir) == (1 << 20, 3, "/kept")
    limits = made_of.limits
    assert (limits.before_s, limits.after_s, limits.every_s, limits.most_bytes) == (7, 8, 9, 5 << 20)
    assert (made_of.most_rows, made_of.budget) == (200, 0.02)
    rates = [parse(["serve", *words])[1].rate for words in ((), ("--rate", "2"))]
    assert rates == [1.0, 2.0], "the daemon has a default of its own"


def test_a_dump_goes_back_as_many_seconds_as_it_says(tmp_path: Path) -> None:
    asked: list[float] = []

    def past(connection: socket.socket, _uid: int, message: dict[str, Any]) -> None:
        asked.append(message["seconds"])
        connection.sendall(wire.packed({"k": "done"}))

    path = str(tmp_path / "s")
    daemon = hub.Hub(listen(path).socket, lambda uid: {"uid": uid}, {"snap": past})
    daemon.start()
    try:
        done = inside.run("dump", "--socket", path, "--seconds", "7", "-o", str(tmp_path / "x"))
    finally:
        daemon.close("over")
    assert asked == [7]
    assert "the daemon observed nothing in that time" in done.stderr


@pytest.mark.slow
def test_explain_heeds_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def notes(*words: str) -> str:
        return str(json.loads(inside.run("explain", str(RECORDING), "--json", *words).stdout)["notes"])

    monkeypatch.setattr(stretches, "NEED", 10_000)
    monkeypatch.setattr(stretches, "LEAST_PART", 20_000)
    assert "too long to be explained at once" in notes("--memory", "0.3")
    assert "too long" not in notes("--memory", "4")


@pytest.mark.slow
def test_pages_go_down_and_up_again_and_a_wide_table_of_calls_has_each_percentile() -> None:
    screen = Shown(fake.frame(processes=60, storm=False), size=(200, 50))
    screen.press("home")
    first = screen.view.processes.selected
    screen.press("pagedown")
    assert screen.view.processes.selected != first
    screen.press("pageup")
    assert screen.view.processes.selected == first
    assert {"p50", "p95", "p99"} <= set(screen.text(200, 50).split())


def test_a_query_stops_after_its_timeout() -> None:
    query = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    done = inside.run("sql", query, str(RECORDING), "--timeout", "0.1")
    assert done.returncode == 1
    assert "0.1 s" in done.stderr


def test_the_screen_is_told_to_send_no_signals() -> None:
    assert parse(["--readonly"])[1].readonly
    assert not parse([])[1].readonly


def test_every_family_of_metrics_has_the_value_that_was_counted() -> None:
    """Those that tests of calls and figures do not name."""
    needed("prometheus_client")
    families = needed("gputop.serve.metrics.metric_families")
    totals, idle = DaemonTotals(START), Idle()
    stays = [
        made.off(START + 9 * MS, 4 * MS, MS, pid=7, tid=7),
        made.off(START + 19 * MS, 0, 2 * MS, pid=7, tid=7, involuntary=1),
    ]
    totals.consume(join([made.call(START, MS, pid=7, tid=7), *stays]))
    totals.consume(made.still_open(START + 20 * MS, [{"pid": 7, "tid": 7}]))
    totals.consume(made.mark(1, START + 20 * MS))
    idle.gpus["GPU 0"] = GpuIdleTime(10 * SECOND, 3 * SECOND, 4 * SECOND)
    idle.causes[7, "C12", "proved"] = 2 * SECOND
    idle.consume_step(7, 70 * MS)
    now = families.CurrentFigures(
        {"calls": 3}, 1.5, 1000, 77, kept=1, not_kept=2, clients=3, budget_step=4, uuids={0: "GPU-1"},
        processes={}, build={"version": "1"}, sent=(5, 6),
    )  # fmt: skip
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.GputopCollector(totals, idle, lambda: now).collect()
        for sample in family.samples
    }
    expected = {
        ("gputop_context_switches_total", "7", "voluntary"): 1,
        ("gputop_context_switches_total", "7", "involuntary"): 1,
        ("gputop_runqueue_seconds_total", "7"): 0.003,
        ("gputop_offcpu_seconds_total", "7"): 0.004,
        ("gputop_gpu_observed_seconds_total", "0", "GPU-1"): 10,
        ("gputop_gpu_idle_seconds_total", "0", "GPU-1"): 3,
        ("gputop_gpu_idle_upper_seconds_total", "0", "GPU-1"): 4,
        ("gputop_idle_cause_seconds_total", "7", "C12", "proved"): 2,
        ("gputop_step_seconds_sum", "7"): 0.07,
        ("gputop_lost_events_total", "calls"): 3,
        ("gputop_own_cpu_seconds_total",): 1.5,
        ("gputop_own_memory_bytes",): 1000,
        ("gputop_probes_active",): 77,
        ("gputop_sessions_total", "yes"): 1,
        ("gputop_sessions_total", "no"): 2,
        ("gputop_clients",): 3,
        ("gputop_budget_step",): 4,
        ("gputop_otlp_exports_total", "yes"): 5,
        ("gputop_otlp_exports_total", "no"): 6,
        ("gputop_build_info", "1"): 1,
    }
    assert {key: found.get(key) for key in expected} == pytest.approx(expected)
