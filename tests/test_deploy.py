"""What deploy/ ships: rules, dashboard, unit and DaemonSet speak of what gputop takes and tells."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from gputop.commands.cli import parse
from probes.process.privileges import FILES, OBSERVING
from tests.conftest import needed, skip_or_fail
from tests.stories.installed import program_of_prometheus

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
EXPRESSIONS = [
    target["expr"]
    for panel in json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    for target in panel["targets"]
]
_OURS = re.compile(r"\bgputop_\w+")


def _promtool(*words: str) -> str:
    tool = program_of_prometheus("promtool")
    if not tool:
        skip_or_fail("no promtool: make setup")
    done = subprocess.run([tool, *words], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _told() -> set[str]:
    """Every metric that /metrics can tell, by the name it has there."""
    metrics, idle = needed("gputop.serve.metrics.metric_families"), needed("gputop.serve.metrics.idle")
    totals = needed("gputop.serve.metrics.daemon_totals")
    now = metrics.CurrentFigures({}, 0.0, 0, 0, 0, 0, 0, 0, {}, {}, {"version": "1"})
    names = set()
    for family in metrics.GputopCollector(totals.DaemonTotals(), idle.Idle(), lambda: now).collect():
        names |= {
            family.name + ending
            for ending in {"counter": ["_total"], "info": ["_info"]}.get(family.type, [""])
        }
        names |= {
            family.name + ending for ending in ("_bucket", "_sum", "_count") if family.type == "histogram"
        }
    return names


def test_alerts_fire_when_their_tests_say_so_and_not_before() -> None:
    assert "SUCCESS" in _promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in _promtool("test", "rules", "alerts_test.yml")


def test_rules_and_dashboard_ask_for_metrics_that_there_are() -> None:
    text = (DEPLOY / "alerts.yml").read_text() + "\n".join(EXPRESSIONS)
    asked = set(_OURS.findall(text))
    assert len(asked) > 12
    assert asked <= _told()


def test_every_expression_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    rules = [
        {
            "record": f"panel:{number}",
            "expr": one.replace("$__rate_interval", "5m").replace("$instance", ".*"),
        }
        for number, one in enumerate(EXPRESSIONS)
    ]
    file = tmp_path / "rules.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in _promtool("check", "rules", str(file))


def test_the_unit_starts_what_gputop_takes_with_the_rights_that_it_keeps() -> None:
    unit = (DEPLOY / "gputop.service").read_text()
    (command,) = re.findall(r"^ExecStart=\S+/gputop (.*)$", unit, re.MULTILINE)
    name, options = parse(command.split())
    assert name == "serve"
    assert options.budget == pytest.approx(0.02)
    (rights,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    assert {f"CAP_{one.name}" for one in OBSERVING | FILES} <= set(rights.split())


def test_the_daemonset_starts_what_gputop_takes() -> None:
    text = (DEPLOY / "daemonset.yaml").read_text()
    block = text.partition("args:\n")[2].partition("securityContext")[0]
    name, options = parse([line.strip().removeprefix("- ") for line in block.strip().splitlines()])
    assert name == "serve"
    assert options.metrics == ("0.0.0.0", 9400)
    assert options.token_file
