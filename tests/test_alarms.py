"""Alerts of the daemon: figures from its counts, a command without a shell and without rights, a webhook."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gputop.playback.alerts import parse
from gputop.serve.metrics.alarms import (
    AGAIN_S,
    AN_HOUR,
    NOBODY,
    Alarms,
    AlertTargets,
    command_words,
    webhook_address,
)
from gputop.serve.metrics.daemon_totals import DaemonTotals, FunctionCalls
from probes import api
from probes.source import GPUS, Sample
from tests import inside
from tests.alarm_marks import S, mark, said_of
from tests.waiting import wait_until


class Clock:
    """Seconds as a test says."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def gpu(second: int, **figures: Any) -> Sample:
    return Sample(GPUS, second * S, {"gpus": [{"index": 0, **figures}]})


def test_figures_are_those_of_the_counts_and_a_line_goes_to_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    totals, steps = DaemonTotals(), [0]
    rules = [parse(text) for text in ("errors > 0.5", "mem > 90", "power > 100", "lost > 3", "reduced > 0")]
    alarms = Alarms(rules, AlertTargets(), totals, reduced=lambda: steps[0])
    alarms.consume(mark(1))
    calls = totals.process_totals(42).calls.setdefault(0, FunctionCalls())
    for second in range(2, 12):
        calls.count, calls.errors = 10 * second, 2 * second if second > 5 else 0
        steps[0] = int(second > 8)
        used = 99 if second > 7 else 10
        alarms.consume(gpu(second, memory_used_bytes=used, memory_total_bytes=100, power_milliwatts=90_000))
        alarms.consume(mark(second, lost=4 if second > 6 else 0))
    name = api.BY_OP[0].name
    assert said_of(capsys) == [
        f"gputop: alert: errors > 0.5: process 42, {name} is at 12",
        "gputop: alert: lost > 3: gputop is at 4",
        "gputop: alert: mem > 90: GPU 0 is at 99 %",
        "gputop: alert: reduced > 0: gputop is at 1",
    ]


def told_of(tmp_path: Path, told: AlertTargets, texts: list[str], clock: Clock | None = None) -> Alarms:
    """Alarms whose rules fire in turn, with a GPU for each."""
    alarms = Alarms([parse("util > 0")], told, DaemonTotals(), host="n1", clock=clock or Clock())
    alarms.start()
    for place, _text in enumerate(texts):
        row = {"index": place, "utilization_percent": 63}
        alarms.consume(Sample(GPUS, (2 + place) * S, {"gpus": [row]}))
        alarms.consume(mark(2 + place))
    return alarms


@pytest.mark.skipif(os.geteuid() != 0, reason="the command becomes nobody")
def test_a_command_gets_the_alert_as_json_as_nobody_and_no_shell_sees_it(tmp_path: Path) -> None:
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        place.chmod(0o777)
        script = place / "page $(touch x)"
        script.write_text(
            '#!/bin/sh\nid -u > "$1.part"; env >> "$1.part"; cat >> "$1.part"; mv "$1.part" "$1"\n'
        )
        script.chmod(0o755)
        out = place / "told; id"
        words = command_words(f"'{script}' '{out}'")
        assert words == (str(script), str(out))
        alarms = told_of(tmp_path, AlertTargets(words), ["one"])
        wait_until(out.exists, "the command")
        uid, *env, told = out.read_text().splitlines()
        alarms.close()
        assert int(uid) == NOBODY
        names = {line.partition("=")[0] for line in env}
        assert names <= {"PATH", "PWD", "SHLVL", "_", "OLDPWD"}, "nothing of the daemon's environment"
        assert json.loads(told) | {"time": ""} == {
            "alert": "util > 0", "rule": "util > 0", "subject": "GPU 0", "value": 63.0, "host": "n1",
            "text": "util > 0: GPU 0 is at 63 %", "left_out": 0, "time": "",
        }  # fmt: skip
        assert not (place / "x").exists()
    finally:
        shutil.rmtree(place)


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An address, and what was posted there."""
    came: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", came
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_is_told_each_once_and_not_more_often_than_its_bounds(
    tmp_path: Path, receiver: tuple[str, list[dict[str, Any]]]
) -> None:
    address, came = receiver
    clock = Clock()
    alarms = told_of(tmp_path, AlertTargets(webhook=address), ["x"] * (AN_HOUR + 9), clock)
    wait_until(lambda: len(came) == AN_HOUR, "the webhook")
    assert {one["subject"] for one in came} == {f"GPU {place}" for place in range(AN_HOUR)}
    clock.now = 3601.0

    def fire(second: int) -> None:
        for at, used in ((second, 0), (second + 1, 63)):
            alarms.consume(gpu(at, utilization_percent=used))
            alarms.consume(mark(at))

    for round_ in range(3):
        fire(100 + 2 * round_)
    wait_until(lambda: len(came) == AN_HOUR + 1, "the first of the next hour")
    assert came[-1]["left_out"] == 9, "what was left out meanwhile is counted"
    clock.now += AGAIN_S
    fire(200)
    wait_until(lambda: len(came) == AN_HOUR + 2, "the same one later")
    assert came[-1]["left_out"] == 2
    alarms.close()


def test_who_does_not_answer_is_reported_and_nothing_else_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alarms = told_of(tmp_path, AlertTargets(("/nonexistent/page",), "http://127.0.0.1:9/secret"), ["one"])
    said: list[str] = []

    def both() -> bool:
        said.extend(said_of(capsys))
        return any("--alert-webhook" in line for line in said)

    wait_until(both, "what is said of both")
    assert any("--alert-command ended with status 127" in line for line in said)
    assert any("127.0.0.1 did not accept the alert" in line for line in said)
    assert not any("secret" in line for line in said)
    alarms.close()


@pytest.mark.parametrize("text", ["", "page me", "../page", "'"])
def test_a_command_is_named_by_its_full_path(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        command_words(text)


@pytest.mark.parametrize("text", ["", "example.org", "ftp://example.org", "file:///etc/passwd", "http://"])
def test_an_address_is_one_of_http(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        webhook_address(text)


def test_who_is_to_be_told_needs_a_rule() -> None:
    refused = inside.run("serve", "--alert-webhook", "http://127.0.0.1:9/")
    assert refused.returncode == 2
    assert "need a rule: --alert GpuWaits" in refused.stderr
