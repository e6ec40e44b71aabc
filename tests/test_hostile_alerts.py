"""Processes that set off a rule without end: the log, the screen and the alerts of others are not theirs."""

from __future__ import annotations

import queue
from dataclasses import replace

import pytest

from gputop.playback.alerts import MOST_SUBJECTS, Alert, Alerts, parse
from gputop.playback.feed import Explained
from gputop.serve.metrics.alarms import AN_HOUR, Alarms, AlertTargets, webhook_address
from gputop.serve.metrics.daemon_totals import DaemonTotals, FunctionCalls, Process
from gputop.ui.model.config import Startup
from gputop.ui.model.view import MOST_ALERTS, View
from tests import fake_frames as fake
from tests.alarm_marks import S, mark, said_of


def fail_in_all(totals: DaemonTotals, count: int) -> None:
    for pid in range(1, count + 1):
        calls = totals.processes.setdefault(pid, Process()).calls
        calls.setdefault(0, FunctionCalls()).errors += 1


def test_a_thousand_processes_fill_no_log_and_take_no_alert_of_another_rule(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: queue.Queue[tuple[Alert, int] | None] = queue.Queue()
    monkeypatch.setattr(queue, "Queue", lambda _most: sent)
    totals = DaemonTotals()
    alarms = Alarms(
        [parse("errors > 0"), parse("lost > 0")], AlertTargets(("/bin/true",)), totals, clock=lambda: 1.0
    )
    for second in range(1, 21):
        if second % 2:
            fail_in_all(totals, 1_000)
        alarms.consume(mark(second, lost=5 if second == 20 else 0))
    lines = said_of(capsys)
    assert len(lines) < 70
    assert sum("lost > 0" in line for line in lines) == 1
    told = [one[0].rule.figure for one in sent.queue if one is not None]
    assert (told.count("errors"), told.count("lost")) == (AN_HOUR, 1)
    assert [one[1] for one in sent.queue if one is not None][-1] > 1_000, "what is left out is told"


def test_subjects_of_one_rule_take_no_room_of_another() -> None:
    alerts = Alerts([parse("errors > 0"), parse("util > 90")])
    figures = {"errors": [(f"process {pid}, cudaFree", 1.0) for pid in range(2 * MOST_SUBJECTS)], "util": []}
    assert len(alerts.hold(1 * S, lambda figure: figures[figure])) == MOST_SUBJECTS
    figures["util"] = [("GPU 0", 99.0)]
    assert [one.subject for one in alerts.hold(2 * S, lambda figure: figures[figure])] == ["GPU 0"]


@pytest.mark.parametrize("place", ["127.0.0.1:9000", "127.0.0.1:8080/hook", "example.org", "10.0.0.1:80"])
def test_a_password_goes_to_nobody_who_took_a_port(place: str) -> None:
    with pytest.raises(ValueError, match="in the clear") as refused:
        webhook_address(f"http://me:hunter2@{place}")
    assert "hunter2" not in str(refused.value)
    assert webhook_address(f"https://me:hunter2@{place}")
    assert webhook_address(f"http://{place}")


def test_a_screen_shows_a_few_of_a_moment_and_counts_the_others() -> None:
    base = fake.frame()
    call = replace(base.processes[0].calls[0], errors=9, nested=False)
    rows = tuple(replace(base.processes[0], pid=pid, calls=(call,)) for pid in range(1, 501))
    view = View(Startup(alerts=(parse("errors > 0"),)))
    told = view.alert(replace(base, processes=rows), Explained())
    assert len(told) == MOST_ALERTS + 1
    assert told[-1][0] == f"{500 - MOST_ALERTS} more alerts at this moment"
