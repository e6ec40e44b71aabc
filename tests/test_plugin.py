"""The plug-in for assistants: what its skill and its server name is what gputop has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gputop.commands.cli import parse
from gputop.commands.command import VERSION
from gputop.commands.overview import TABLE
from gputop.exchange.session_tables import COLUMNS
from gputop.query.catalogue import Catalogue
from gputop.query.investigation import investigate
from gputop.query.mcp_server import server_of
from gputop.query.reply import BEGIN, END
from tests.conftest import needed

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "plugin"
SKILL = (PLUGIN / "skills" / "gputop" / "SKILL.md").read_text()


def test_the_plug_in_starts_the_server_over_the_folder_it_is_in() -> None:
    told = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())
    assert told["version"] == VERSION.split("+")[0]
    [server] = told["mcpServers"].values()
    assert server["command"] == "gputop"
    name, options = parse(server["args"])
    assert (name, options.files, options.http) == ("mcp", ["."], None)


def test_the_skill_says_what_it_is_for_in_the_form_that_is_read() -> None:
    head = re.match(r"---\nname: (?P<name>[a-z-]+)\ndescription: (?P<about>.+)\n---\n", SKILL)
    assert head is not None
    assert head["name"] == "gputop"
    assert len(head["about"]) <= 1024


def test_the_skill_names_commands_that_can_be_typed() -> None:
    typed = re.findall(r"`(?:sudo )?gputop ([^`]+)`", SKILL)
    assert {words.split()[0] for words in typed} <= set(TABLE)
    for words in typed:
        parse(words.replace("N", "1").split())


async def test_the_skill_and_the_prompt_name_tools_and_tables_that_there_are() -> None:
    needed("mcp")
    server = server_of(Catalogue([str(ROOT / "recordings")]), "test")
    tools = {tool.name for tool in await server.list_tools()}
    for text in (SKILL, investigate()):
        named = set(re.findall(r"\b(?:get|list|compare|run)_[a-z_]+\b", text))
        assert named
        assert named <= tools
    assert {"gaps", "slices", "calls"} <= set(COLUMNS)
    assert f"`{BEGIN}`" in SKILL
    assert f"`{END}`" in SKILL
