#!/usr/bin/env python3
"""Writes gputop's output for the recordings into the pages that show it.

In README.md, each block that begins with ``$ gputop`` and works on recordings/, cut where ``| head -n N``
follows; in recordings/README.md, the table; in docs/commands.md, the list of commands.
tests/test_recordings.py checks that nothing has changed since.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from gputop.commands.overview import GROUPS
from gputop.demo.stories import STORIES

ROOT = Path(__file__).resolve().parent.parent
README, TABLE = ROOT / "README.md", ROOT / "recordings" / "README.md"
COMMANDS = ROOT / "docs" / "commands.md"
BEGIN, END = "<!-- recordings: scripts/shown.py -->\n", "<!-- end of recordings -->"
COMMANDS_BEGIN, COMMANDS_END = "<!-- commands: scripts/shown.py -->\n", "<!-- end of commands -->"
_BLOCK = re.compile(
    r"^```\n\$ gputop (?P<words>.*? recordings/.*?)(?P<cut> \| head -n (?P<lines>\d+))?\n(?:.*\n)*?```$",
    re.MULTILINE,
)


def output_of(words: list[str]) -> str:
    """The output of ``gputop WORDS`` in a terminal that is wide enough."""
    command = [sys.executable, "-m", "gputop", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def with_outputs(page: str) -> str:
    """A page whose blocks are the output of their commands."""

    def shown(block: re.Match[str]) -> str:
        lines = output_of(block["words"].split()).splitlines(keepends=True)
        text = "".join(lines[: int(block["lines"])] if block["cut"] else lines)
        return f"```\n$ gputop {block['words']}{block['cut'] or ''}\n{text}```"

    return _BLOCK.sub(shown, page)


def table() -> str:
    """One row per recording: the demo's own words, and the first sentence of the explanation."""
    lines = ["| file | what | what `gputop explain` says first |", "|---|---|---|"]
    for name, story in STORIES.items():
        file = f"recordings/{name}.msgpack"
        verdict = json.loads(output_of(["explain", "--json", file]))["verdict"]
        lines.append(f"| `{name}.msgpack` | {story.title} | {verdict} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """The page of the recordings with its table."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


def commands() -> str:
    """The commands in their groups, as ``gputop --help`` lists them."""
    parts = []
    for title, rows in GROUPS.items():
        parts.append(f"| {title} | |\n|---|---|\n")
        for row in rows:
            typed = f"gputop {row.typed}".rstrip().replace("|", "\\|")
            parts.append(f"| `{typed}` | {row.summary} |\n")
        parts.append("\n")
    return "".join(parts)


def with_commands(page: str) -> str:
    """The page of the commands with its list."""
    before, rest = page.split(COMMANDS_BEGIN)
    return before + COMMANDS_BEGIN + "\n" + commands() + COMMANDS_END + rest.split(COMMANDS_END)[1]


def main() -> None:
    """Writes the pages."""
    COMMANDS.write_text(with_commands(COMMANDS.read_text(encoding="utf-8")), encoding="utf-8")
    README.write_text(with_outputs(README.read_text(encoding="utf-8")), encoding="utf-8")
    TABLE.write_text(with_table(TABLE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
