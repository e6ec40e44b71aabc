"""An assistant that asks the present through the daemon, as a user."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.asking import asked
from tests.conftest import needed
from tests.gputop_command import GPUTOP
from tests.rootless_support import as_nobody, environment
from tests.serving import calling, serving

pytestmark = pytest.mark.ebpf


async def _answers(parameters: Any, mine: int, roots: int) -> None:
    async with asked(parameters) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "observe" in names
        told = await _called(client, "observe", {"seconds": 4})
        assert told["session"]
        assert told["lost_events"] == 0
        calls = await _called(client, "get_trace_stats", {"session": told["session"], "group_by": "process"})
        assert str(mine) in json.dumps(calls)
        assert str(roots) not in json.dumps(calls)
        gpus = await _called(client, "get_gpu_status", {})
        assert gpus["at"] == "now"
        assert len(gpus["gpus"]) == 1


async def _called(client: Any, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    (part,) = result.content
    assert not result.is_error, part.text
    found: dict[str, Any] = json.loads(part.text)
    return found


@pytest.mark.long
def test_an_assistant_observes_what_its_user_may_see_and_leaves_nothing(tmp_path: Path) -> None:
    stdio = needed("mcp")
    needed("duckdb")
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    (tmp_path / "state").touch()
    (tmp_path / "state").chmod(0o666)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    with (
        serving(tmp_path, "--keep-dir", "") as daemon,
        calling(tmp_path, 1_000_000, 0.005) as roots,
        calling(tmp_path, 1_000_000, 0.005, nobody=True) as mine,
    ):
        command = [*as_nobody(), *GPUTOP, "mcp", "--live", "--socket", daemon.socket]
        env = environment(tmp_path) | {"TMPDIR": str(scratch)}
        parameters = stdio.StdioServerParameters(command=command[0], args=command[1:], env=env)
        asyncio.run(_answers(parameters, mine, roots))
        assert list(scratch.iterdir()) == []


def test_root_is_not_lent_to_an_assistant(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gputop", "mcp", "--live", "--socket", str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "as a user" in done.stderr
