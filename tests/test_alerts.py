"""Alerts: the rules, when they fire, and that the named ones are those of deploy/alerts.yml."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.answer.picture import OneStep
from gputop.commands.screen.looks import known_columns
from gputop.engine.frame import Frame
from gputop.playback.alerts import (
    EVERY_NS,
    FIGURES,
    MOST_SUBJECTS,
    NAMED,
    Alert,
    Alerts,
    Rule,
    RuleError,
    parse,
)
from gputop.playback.feed import Explained
from gputop.ui.model.config import load
from gputop.ui.model.look import UNICODE, plain
from gputop.ui.model.time.blocklanes import Look
from gputop.ui.model.view import TOGGLED
from tests import fake_frames as fake
from tests import fake_reports as why
from tests import inside
from tests.screen_support import feed_frame, running, said, text_of

S, MS = fake.S, why.MS
BASE = fake.frame()
RULES = Path(__file__).parents[1] / "deploy" / "alerts.yml"


def explained(now_ns: int, idle: float) -> Explained:
    """Ten seconds of GPU 0 that was provably idle for so many percent."""
    return Explained(why.report(told=why.account(int(100 * idle))), now_ns)


def frame(now_s: float, **changes: object) -> Frame:
    """A frame at a moment."""
    return replace(BASE, time_ns=int(now_s * S), **changes)  # type: ignore[arg-type]


def fired(rule: str, figures: dict[int, float], until_s: int) -> list[tuple[int, str]]:
    """When a rule about idle time fires; figures hold from their second on, NaN: nothing is known."""
    alerts, told, now = Alerts([parse(rule)]), [], 0.0
    for second in range(until_s):
        now = figures.get(second, now)
        why_now = Explained() if now != now else explained(second * S, now)
        told += [(second, one.subject) for one in alerts.consume(frame(second), why_now)]
    return told


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("idle > 50 for 5m", Rule("idle > 50 for 5m", "idle", 0, ">", 50.0, 300 * S)),
        ("idle>50%", Rule("idle>50%", "idle", 0, ">", 50.0, 0)),
        ("  util < 12.5  for 30s ", Rule("util < 12.5 for 30s", "util", 0, "<", 12.5, 30 * S)),
        (
            "errors over 5m > 0.1 for 2h",
            Rule("errors over 5m > 0.1 for 2h", "errors", 300 * S, ">", 0.1, 7200 * S),
        ),
    ],
)
def test_a_rule_is_read(text: str, rule: Rule) -> None:
    assert parse(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "", "idle", "idle > ", "idle >= 5", "load > 5", "power > 5%", "idle > 5 for 5d", "idle > 5 for 999h",
        "idle > 5; rm -rf /", "idle > 1e9",
    ],
)  # fmt: skip
def test_what_is_no_rule_is_a_sentence(text: str) -> None:
    with pytest.raises(RuleError, match=re.escape(repr(text))):
        parse(text)


def test_a_rule_fires_once_it_was_true_for_its_time_and_again_after_it_was_false() -> None:
    assert fired("idle > 50 for 5m", {0: 20, 100: 63}, 1000) == [(400, "GPU 0")]
    assert fired("idle > 50 for 5m", {0: 63, 299: 20, 302: 63}, 600) == []
    assert fired("idle > 50 for 10s", {0: 63, 50: 20, 60: 63}, 100) == [(10, "GPU 0"), (70, "GPU 0")]
    assert fired("idle > 50", {0: 50, 20: 50.01}, 60) == [(20, "GPU 0")], "more than the bound"


def test_where_nothing_is_known_for_long_nothing_was_true_meanwhile() -> None:
    unknown = float("nan")
    assert fired("idle > 50 for 60s", {0: 63, 30: unknown, 45: 63}, 100) == [(60, "GPU 0")]
    assert fired("idle > 50 for 60s", {0: 63, 30: unknown, 90: 63}, 160) == [(150, "GPU 0")]


def test_a_mean_over_time_smooths_what_comes_and_goes() -> None:
    pattern = {second: 90.0 if second // 30 % 2 else 30.0 for second in range(0, 2400, 30)}
    assert fired("idle > 50 for 15m", pattern, 2400) == []
    (at, subject), *more = fired("idle over 10m > 50 for 15m", pattern, 2400)
    assert (subject, more) == ("GPU 0", [])
    assert 900 <= at <= 1600


def test_failed_calls_of_one_function_fire_and_those_that_stopped_do_not() -> None:
    call = replace(fake.call(0), nested=False, errors=2)
    failing = replace(fake.process(0), calls=(call,))
    window = frame(0).window_ns
    alerts = Alerts([NAMED["CudaErrors"]])
    told: list[Alert] = []
    for second in range(1200):
        rows = (failing,) if second < 900 and second % 2 else ()
        told += alerts.consume(frame(second, processes=rows), Explained())
    assert [one.subject for one in told] == [f"process {failing.pid}, {call.api}"]
    assert 295 <= told[0].time_ns / S <= 320
    assert told[0].value == pytest.approx(1 / (window / S), rel=0.05)
    once = Alerts([NAMED["CudaErrors"]])
    for second in range(1200):
        rows = (failing,) if second == 3 else ()
        assert not once.consume(frame(second, processes=rows), Explained())
    assert not once.subjects, "what made no call and failed in none is forgotten"


def test_lost_events_count_by_their_increase() -> None:
    for lost_at, count in ((5, 1), (10**9, 0)):
        alerts, told = Alerts([NAMED["GputopLosesEvents"]]), 0
        for second in range(1300):
            lost = replace(BASE.lost, events=7 + (second >= lost_at) * second)
            told += len(alerts.consume(frame(second, lost=lost), Explained()))
        assert told == count


def test_steps_that_take_twice_those_of_half_an_hour_before_fire() -> None:
    step = OneStep(7, 7, 0, np.zeros(1, np.int64), 9, 0, (), (), np.zeros((0, 2), np.int64))
    alerts, told = Alerts([NAMED["StepsSlower"]]), []
    for second in range(0, 7200, 2):
        made = replace(step, median_ns=10 * MS if second < 3600 else 25 * MS)
        told += alerts.consume(frame(second), Explained(None, second * S, steps=(made,)))
    assert len(told) == 1
    assert 3600 + 600 <= told[0].time_ns / S <= 3600 + 1300
    assert told[0].value == pytest.approx(2.5)


@pytest.mark.slow
def test_subjects_are_bounded_and_figures_are_taken_once_a_second() -> None:
    alerts = Alerts([parse("errors > 1000")])
    many = tuple(
        replace(
            fake.process(place), pid=10_000 + place, calls=(replace(fake.call(0), nested=False, errors=1),)
        )
        for place in range(MOST_SUBJECTS + 50)
    )
    alerts.consume(frame(1, processes=many), Explained())
    assert len(alerts.subjects) == MOST_SUBJECTS
    quick = Alerts([parse("util < 101")])
    assert quick.consume(frame(1), Explained())
    assert not quick.consume(replace(frame(1), time_ns=S + EVERY_NS - 1), Explained())


def test_the_named_rules_are_those_of_prometheus() -> None:
    text = RULES.read_text()
    there = dict(re.findall(r"- alert: (\w+)\n(.*?)(?=\n      - |\Z)", text, re.DOTALL))
    assert set(there) - set(NAMED) == {"GputopDown"}, "nobody can tell of their own end"
    for name, body in there.items():
        if name in NAMED:
            rule = NAMED[name]
            minutes = re.search(r"for: (\d+)m", body)
            assert minutes is not None
            assert rule.held_ns == int(minutes[1]) * 60 * S, name
            bound = re.search(r"> (\d+(?:\.\d+)?)", body)
            assert bound is not None
            scale = 100 if rule.figure == "idle" else 1
            assert rule.bound == scale * float(bound[1]), name
            over = re.search(r"\[(\d+)m\]", body) or (
                re.search(r"ratio(\d+)m", body) if "ratio" in body else None
            )
            assert rule.over_ns == (int(over[1]) * 60 * S if over else 0), name


def test_every_figure_is_read_from_a_frame_and_reported_with_its_unit() -> None:
    for name, figure in FIGURES.items():
        rule = parse(f"{name} > 0")
        now = 100 * S
        some = Alerts([rule]).consume(frame(100), explained(now, 60))
        if name in ("idle", "util", "power", "temp", "mem"):
            assert some, name
            assert some[0].text().endswith(f" {figure.unit}")


def test_rules_of_the_preferences_are_read_and_wrong_ones_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('alerts = ["idle > 50 for 5m", "CudaErrors", "nonsense", 7]\n')
    file.chmod(0o600)
    made = load(file, known_columns(), TOGGLED)
    if made.alerts:  # as root only where every folder above is root's
        assert made.alerts == (parse("idle > 50 for 5m"), NAMED["CudaErrors"])
        assert len(made.problems) == 2
        assert "'nonsense' is not a rule such as 'idle > 50 for 5m'" in made.problems[0]


@pytest.mark.slow
@pytest.mark.parametrize("replay", [False, True])
async def test_an_alert_rings_says_marks_and_logs(replay: bool, caplog: pytest.LogCaptureFixture) -> None:
    rules = (parse("idle > 50 for 5s"), parse("temp > 1000"))
    caplog.set_level(logging.WARNING, logger="gputop.ui.app")
    logging.getLogger("gputop.ui.app").addHandler(caplog.handler)  # commands let nothing go up from there
    async with running(frame(100), replay=replay, alerts=rules) as screen:
        app, feed, _pilot = screen
        rung: list[int] = []
        app.bell = lambda: rung.append(1)  # type: ignore[method-assign]
        for second in range(101, 109):
            feed.why = explained(second * S, 63)
            app.view.explain(feed.why)
            await feed_frame(screen, replace(frame(second), number=second))
        assert rung == [1]
        text = "idle > 50 for 5s: GPU 0 is at 63 %"
        assert said(app) == text
        assert text in text_of(app)
        assert {record.getMessage() for record in caplog.records} == {f"alert: {text}"}
        if not replay:
            assert [one.data["text"] for one in feed.marked] == [f"alert: {text}"], (
                "it goes into the recording"
            )
            timeline, look = app.view.timeline, Look(UNICODE, letters=False)
            timeline.append(why.explained(end_ns=109 * S))
            for marked, shown in (((), False), ((106 * S,), True)):
                timeline.marked_ns = marked
                lanes = [plain(line) for line in timeline.picture(100, 8, (), 109 * S, look).lines]
                assert any("marks" in line and "M" in line for line in lanes) is shown


@pytest.mark.slow
async def test_an_alert_comes_also_while_the_screen_is_paused() -> None:
    async with running(frame(100), alerts=(parse("idle > 50"),)) as screen:
        app, feed, pilot = screen
        await pilot.press("space")
        feed.why = explained(105 * S, 63)
        feed.newest = replace(frame(105), number=5)
        app.poll()
        await pilot.pause()
        assert "GPU 0 is at 63 %" in said(app)
        assert [mark.time_ns for mark in feed.marked] == [105 * S], "of the present, not of what is shown"


@pytest.mark.parametrize("command", [["--once"], ["replay", "x", "--once"], ["attach", "--json"]])
def test_a_rule_for_one_frame_is_refused(command: list[str]) -> None:
    refused = inside.run(*command, "--alert", "idle > 5")
    assert (refused.returncode, "--alert goes with the screen" in refused.stderr) == (2, True)
    nonsense = inside.run(*command, "--alert", "nonsense")
    assert (nonsense.returncode, "is not a rule such as" in nonsense.stderr) == (2, True)
