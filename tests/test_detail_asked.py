"""What is asked of a recording that kept sums of its calls: exact where sums tell it, and said where not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gputop
from gputop.analysis.answer.picture import COLUMN_NS, RUNNING
from gputop.analysis.build import examine
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.analysis.lanes import lanes_of
from gputop.exchange.stacks import stack_times
from gputop.recording.adaptive import SumsOnly
from gputop.recording.tick_sums import Reducer
from probes.source import MARK, Item, Sample
from replay.writer import SessionWriter
from tests.asking import asked, of_folder
from tests.inside import run
from tests.split_recording import read

STORM = Path(__file__).resolve().parents[1] / "recordings" / "storm.msgpack"
SAID = "not kept: calls of"


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storm, of which only sums were kept."""
    header, told = read(STORM)
    detail = SumsOnly(int(header["start_ns"]))
    writer = SessionWriter(tmp_path_factory.mktemp("sums") / "sums.msgpack", header)
    for one in (*(one for item in told for one in detail.consume(item)), *detail.finish()):
        writer.write(one)
    writer.close()
    return Path(writer.path)


def test_stacks_have_the_time_of_all_calls_and_waits(sums: Path) -> None:
    with gputop.open_session(STORM) as full, gputop.open_session(sums) as less:
        assert stack_times(less) == stack_times(full)


def ticks(told: list[Item]) -> list[list[Item]]:
    """The items, each tick up to its mark."""
    found: list[list[Item]] = [[]]
    for item in told:
        found[-1].append(item)
        if isinstance(item, Sample) and item.kind == MARK:
            found.append([])
    return found


def test_a_thread_whose_switches_were_not_kept_is_not_reported_to_run() -> None:
    """Of the first half every record is kept, of the second one sums."""
    header, told = read(STORM)
    parts, reducer, gatherer = ticks(told), Reducer(int(header["start_ns"])), Gatherer(header)
    half = len(parts) // 2
    for number, part in enumerate(parts):
        for item in reducer.whole(part) if number < half else reducer.reduced(part):
            gatherer.feed(item)
    evidence = assemble(gatherer)
    report, scene, outcome = examine(evidence)
    lanes = lanes_of(scene, outcome, report, report.start_ns)
    running = np.array([lane.states[RUNNING] for lane in lanes.threads])
    since = -(-parts[half - 1][-1].time_ns // COLUMN_NS) - lanes.first  # type: ignore[union-attr]
    assert running[:, : since - 1].any()
    assert not running[:, since:].any()


@pytest.mark.long
@pytest.mark.slow
def test_a_query_and_an_export_say_what_their_tables_do_not_hold(sums: Path, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    assert SAID in run("sql", "select count(*) from calls", str(sums)).stderr
    assert run("sql", "select count(*) from calls", str(STORM)).stderr == ""
    assert SAID in run("export", str(sums), "--to", "csv", "-o", str(tmp_path / "tables")).stderr
    assert SAID not in run("export", str(STORM), "--to", "csv", "-o", str(tmp_path / "whole")).stderr


def told(folder: Path, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers, without the marks around text of traced programs."""

    async def ask() -> str:
        async with asked(of_folder(folder)) as client:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            return str(result.content[0].text)

    answer: dict[str, Any] = json.loads(asyncio.run(ask()))
    return answer


@pytest.mark.long
@pytest.mark.slow
def test_an_assistant_is_told_what_rows_do_not_hold_and_checks_all_the_same(sums: Path) -> None:
    check = told(sums.parent, "get_check")
    assert any("no call of this time was kept" in text for text in check["failures"])
    assert any(SAID in text for text in check["notes"])
    for tool, more in (
        ("get_trace_stats", {}),
        ("get_timeline", {"from_s": 0, "to_s": 1}),
        ("run_sql", {"query": "select count(*) from calls"}),
        ("graph_lifecycle", {"pid": 1}),
        ("graph_frequency", {"pid": 1}),
    ):
        assert any(SAID in text for text in told(sums.parent, tool, **more)["missing"]), tool
        assert "missing" not in told(STORM.parent, tool, session="storm", **more)
