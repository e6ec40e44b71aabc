"""``gputop mcp``: what an assistant gets of recordings, by the SDK's own client, in both of its protocols."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.query.catalogue import Catalogue
from gputop.query.mcp_server import server_of
from gputop.query.reply import BEGIN, END, MOST_BYTES
from tests.asking import RECORDINGS, TOOLS, asked, text_of
from tests.conftest import needed
from tests.each_recording import KINDS
from tests.gputop_command import GPUTOP
from tests.investigator import investigate, numbers
from tests.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[1]
# what each demo plants (gputop/demo), as recordings/README.md tells
PLANTED = {
    "dataloader": "C12",
    "dataloader-direct": "C12",
    "dataloader-workers": "C08",
    "numpy-sync": "C02",
    "redundant-to-device": "C05",
    "storm": "C13",
    "healthy": None,
    "dataloader-fixed": None,
    "numpy-sync-fixed": None,
    "redundant-to-device-fixed": None,
}


def status_of(port: int, **headers: str) -> tuple[int, str | None]:
    """What a request to begin a session ends with, and the session that is held for it."""
    accept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS_S)
    connection.request("POST", "/mcp", body, {**accept, **headers})
    answer = connection.getresponse()
    connection.close()
    return answer.status, answer.getheader("Mcp-Session-Id")


# -- transports -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "tools"),
    [
        ("auto", tuple(TOOLS)),
        pytest.param("legacy", tuple(TOOLS), marks=pytest.mark.long),
    ],
)
async def test_every_tool_resource_and_the_prompt_answer_over_standard_input(
    mode: str, tools: tuple[str, ...]
) -> None:
    mcp = needed("mcp")
    words = [*GPUTOP[1:], "mcp", str(RECORDINGS)]
    async with asked(mcp.StdioServerParameters(command=GPUTOP[0], args=words), mode) as client:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == set(TOOLS)
        assert all(
            tool.annotations.read_only_hint and not tool.annotations.open_world_hint for tool in listed
        )
        for tool in tools:
            assert json.loads(await text_of(client, tool, TOOLS[tool]))
        for uri in ("gputop://schema", "gputop://causes", "gputop://causes/C13", "session://storm/report"):
            [content] = (await client.read_resource(uri)).contents
            assert 0 < len(content.text.encode()) <= MOST_BYTES
        [message] = (await client.get_prompt("investigate", {"session": "storm"})).messages
        assert "could refute" in message.content.text
        assert BEGIN in client.instructions


@pytest.mark.long
@pytest.mark.parametrize("calls", [30, pytest.param(100, marks=pytest.mark.long)])
async def test_parallel_calls_over_http_each_get_their_own_answer(calls: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*GPUTOP, "mcp", str(RECORDINGS), "--http", str(port)], stderr=subprocess.DEVNULL, cwd=ROOT
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        async with asked(f"http://127.0.0.1:{port}/mcp") as client:
            names = sorted(PLANTED)[: calls // 10]
            replies = await asyncio.gather(
                *(
                    text_of(
                        client,
                        "run_sql",
                        {
                            "session": names[one % len(names)],
                            "query": f"select {one}, duration_ns from sessions",
                        },
                    )
                    for one in range(calls)
                )
            )
        lengths = {name: gputop.stats(RECORDINGS / f"{name}.msgpack").duration_ns for name in names}
        for one, reply in enumerate(replies):
            told, name = json.loads(reply), names[one % len(names)]
            assert (told["session"], told["rows"]) == (name, [[one, lengths[name]]])
        assert status_of(port) == (200, None)  # who begins without end leaves nothing behind
        assert status_of(port, Host="evil.example") == (421, None)  # a page that rebinds its name
        assert status_of(port, Origin="https://evil.example") == (403, None)
    finally:
        process.terminate()
        process.wait(HANGS_S)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    """The recordings: what one server has found out about a file, the next one need not."""
    needed("mcp")
    needed("duckdb")
    return Catalogue([str(RECORDINGS)])


@pytest.fixture
def server(catalogue: Catalogue) -> Any:
    """A server over them."""
    return server_of(catalogue, "test")


# -- what is answered -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "session",
    [pytest.param(name, marks=() if name in KINDS else pytest.mark.long) for name in sorted(PLANTED)],
)
@pytest.mark.slow
@pytest.mark.mainly("dataloader-workers", "healthy")
async def test_who_follows_the_prompt_ends_at_the_planted_cause_or_at_nothing(
    server: Any, session: str
) -> None:
    async with asked(server) as client:

        async def ask(tool: str, arguments: dict[str, Any]) -> str:
            return await text_of(client, tool, arguments)

        found = await investigate(ask, session)
    assert found.cause == PLANTED[session]
    assert not found.refuted
    if found.cause is None:
        assert "nothing repeats" in found.answer
    known = numbers(" ".join(found.replies))
    assert numbers(found.answer) <= known


@pytest.mark.slow
async def test_the_check_refutes_a_finding_that_blames_the_wrong_thread(server: Any) -> None:
    async with asked(server) as client:

        async def ask(tool: str, arguments: dict[str, Any]) -> str:
            reply = json.loads(await text_of(client, tool, arguments))
            for finding in reply.get("findings", ()):
                finding["cause"] = "C12" if finding["cause"] == "C13" else finding["cause"]
            if "query" in arguments:  # the gaps are still those of the true cause
                query = arguments["query"].replace("'C12'", "'C13'")
                return await text_of(client, tool, {**arguments, "query": query})
            return json.dumps(reply)

        found = await investigate(ask, "storm")
    assert "C12" in found.refuted


@pytest.mark.slow
async def test_figures_are_those_of_the_library_with_their_unit_in_the_key(server: Any) -> None:
    report = gputop.explain(RECORDINGS / "storm.msgpack")
    totals = gputop.stats(RECORDINGS / "storm.msgpack")
    async with asked(server) as client:
        chains = json.loads(await text_of(client, "get_causal_chains", TOOLS["get_causal_chains"]))
        stats = json.loads(await text_of(client, "get_trace_stats", {"session": "storm", "top_n": 200}))
        rows = json.loads(await text_of(client, "get_per_process_breakdown", {"session": "storm"}))
    first = chains["findings"][0]
    assert first["loss_ms"]["proved"] == pytest.approx(report.findings[0].loss.lower / 1e6, abs=1e-3)
    assert first["loss_ms"]["at_most"] == pytest.approx(report.findings[0].loss.upper / 1e6, abs=1e-3)
    assert first["moments_s"] == [pytest.approx(at / 1e9, abs=1e-3) for at in report.findings[0].moments_ns]
    assert chains["unexplained_ms"] == pytest.approx(report.unexplained_ns / 1e6)
    calls = {(call.api, call.nested): call for one in totals.processes for call in one.calls}
    assert {(row["api"], row["nested"]) for row in stats["rows"]} == set(calls)
    for row in stats["rows"]:
        call = calls[row["api"], row["nested"]]
        assert row["count"] == call.count
        assert row["sum_ms"] == pytest.approx(call.sum_ns / 1e6)
    switches = {one["pid"]: one["involuntary_switches"] for one in rows["processes"]}
    assert switches == {
        one.pid: sum(thread.involuntary_switches for thread in one.threads) for one in totals.processes
    }
    for reply in (chains, stats, rows):
        assert not re.findall(r'"\w*(?:_ns|_us)"', json.dumps(reply))


@pytest.mark.slow
async def test_a_long_answer_comes_in_pages_that_add_up(server: Any) -> None:
    query = "select start_ns from calls order by start_ns limit 3000"
    async with asked(server) as client:
        rows: list[Any] = []
        cursor, pages = None, 0
        while cursor is not None or not pages:
            arguments = {"session": "storm", "query": query, "limit": 3000, "cursor": cursor}
            reply = json.loads(await text_of(client, "run_sql", arguments))
            rows, cursor, pages = rows + reply["rows"], reply.get("next_cursor"), pages + 1
        result = await client.call_tool("run_sql", {**arguments, "cursor": "../.."})
    assert pages > 1
    assert len(rows) == 3000
    assert rows == sorted(rows)
    assert result.is_error
    assert "not a cursor" in result.content[0].text


@pytest.mark.slow
async def test_cells_that_hold_other_values_are_one_marked_text_and_what_is_cut_shows_it(server: Any) -> None:
    query = "select map {name: 1} as m, range(9999) as l from processes limit 1"
    async with asked(server) as client:
        [[pairs, many]] = json.loads(await text_of(client, "run_sql", {"session": "storm", "query": query}))[
            "rows"
        ]
    assert pairs == f'{BEGIN}{{"python": 1}}{END}'
    assert many.startswith(f"{BEGIN}[0, 1, 2")
    assert many.endswith(f"…{END}")


@pytest.mark.parametrize(
    ("tool", "more", "said"),
    [
        ("get_trace_stats", {"from_s": 1e300}, None),
        ("get_trace_stats", {"pids": [10**30]}, None),
        ("get_timeline", {"from_s": -1e300, "to_s": 1e300, "buckets": 10**9}, None),
        ("get_timeline", {"from_s": 2, "to_s": 1}, "nothing is explained"),
        ("get_causal_chains", {"from_s": 5, "to_s": 1}, "there is nothing from 5 s"),
        ("get_causal_chains", {"top_n": -5}, None),
        ("get_gpu_status", {"at_s": 1e300}, "outside the recording"),
        ("get_stacks", {"kind": "looks"}, "kind"),
        ("run_sql", {"query": "select now()"}, None),
        ("run_sql", {"query": "from read_text('/etc/passwd')"}, "Permission Error"),
    ],
)
async def test_arguments_without_sense_get_an_answer_or_a_sentence(
    server: Any, tool: str, more: dict[str, Any], said: str | None
) -> None:
    async with asked(server) as client:
        result = await client.call_tool(tool, {**TOOLS[tool], **more})
    text = result.content[0].text
    assert "Traceback" not in text
    if said is None:
        assert not result.is_error or "pytz" in text
    else:
        assert result.is_error
        assert said in text


async def test_the_page_lists_each_tool_and_resource_that_there_is(server: Any) -> None:
    page = (ROOT / "docs" / "assistant.md").read_text()
    async with asked(server) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        templates = (await client.list_resource_templates()).resource_templates
        resources = [str(one.uri) for one in (await client.list_resources()).resources]
    assert sorted(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) == sorted(tools)
    for uri in (*resources, *(one.uri_template.replace("{number}", "C12") for one in templates)):
        assert f"`{uri}`" in page
