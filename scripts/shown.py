#!/usr/bin/env python3
"""Writes what gputop prints of the recordings into the pages that show it.

In README.md, each block that begins with ``$ gputop`` and works on recordings/; in recordings/README.md, the
table. tests/test_recordings.py looks that nothing has changed since.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from gputop.demo.stories import STORIES

ROOT = Path(__file__).resolve().parent.parent
README, TABLE = ROOT / "README.md", ROOT / "recordings" / "README.md"
BEGIN, END = "<!-- recordings: scripts/shown.py -->\n", "<!-- end of recordings -->"
_BLOCK = re.compile(r"^```\n\$ gputop (?P<words>.* recordings/.*)\n(?P<output>(?:.*\n)*?)```$", re.MULTILINE)


def output_of(words: list[str]) -> str:
    """What ``gputop WORDS`` prints when nobody's terminal is narrower than its text."""
    command = [sys.executable, "-m", "gputop", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def with_outputs(page: str) -> str:
    """A page whose blocks show what their commands print."""

    def shown(block: re.Match[str]) -> str:
        return f"```\n$ gputop {block['words']}\n{output_of(block['words'].split())}```"

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


def main() -> None:
    """Writes both pages."""
    README.write_text(with_outputs(README.read_text(encoding="utf-8")), encoding="utf-8")
    TABLE.write_text(with_table(TABLE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
