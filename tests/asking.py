"""Asks the MCP server by the SDK's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gputop.query.catalogue import Catalogue
from gputop.query.mcp_server import server_of
from gputop.query.reply import MOST_BYTES
from tests.conftest import needed

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
# each tool with arguments that it answers
TOOLS: dict[str, dict[str, Any]] = {
    "list_sessions": {},
    "get_check": {"session": "storm"},
    "get_trace_stats": {"session": "storm"},
    "get_causal_chains": {"session": "storm"},
    "get_per_process_breakdown": {"session": "storm"},
    "get_stacks": {"session": "storm"},
    "get_timeline": {"session": "storm", "from_s": 1, "to_s": 2},
    "graph_lifecycle": {"session": "storm", "pid": 2312},
    "graph_frequency": {"session": "storm", "pid": 2312},
    "compare_sessions": {"before": "dataloader", "after": "dataloader-fixed"},
    "get_gpu_status": {"session": "storm"},
    "run_sql": {"session": "storm", "query": "select count(*) from calls"},
}


def of_folder(folder: Path) -> Any:
    """A server over a folder."""
    needed("mcp")
    needed("duckdb")
    return server_of(Catalogue([str(folder)]), "test")


@asynccontextmanager
async def asked(server: Any, mode: str = "auto") -> AsyncIterator[Any]:
    """A client of it: a server in this process, parameters of one to start, or an address."""
    async with needed("mcp").Client(server, mode=mode) as client:
        yield client


async def text_of(client: Any, tool: str, arguments: dict[str, Any]) -> str:
    """What a tool says; it is no error, and within its bound."""
    result = await client.call_tool(tool, arguments)
    [content] = result.content
    text: str = content.text
    assert not result.is_error, text
    assert len(text.encode()) <= MOST_BYTES
    return text
