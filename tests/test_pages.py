"""The README and the pages: links lead somewhere, and gputop takes the commands."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.commands import cli
from tests import inside

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "recordings/README.md")
_BLOCK = re.compile(r"^```(sh)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:sudo )?(?:[A-Z_]+=\S+ )*gputop\b(.*?)(?:\s(?:>>?.*|&))?")


def commands_in(page: Path) -> list[list[str]]:
    """The words after gputop in each command of a page's blocks."""
    found = []
    for shell, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if not shell and not line.startswith("$ "):
                continue  # output
            parts = re.split(r" && | \| |; ", re.sub(r"(?:^|\s)#.*", "", line.removeprefix("$ ")))
            found += [shlex.split(match[1]) for part in parts if (match := _COMMAND.fullmatch(part.strip()))]
    return found


def test_gputop_takes_each_command_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # gputop web refuses root
    monkeypatch.chdir(ROOT)
    commands = [words for page in PAGES for words in commands_in(page)]
    assert commands
    for words in commands:
        if not any("…" in word or "..." in word for word in words):
            with suppress(SystemExit):  # --help and its like
                cli.parse(words)


def test_each_command_of_the_readme_over_a_recording_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ran = set()
    for words in commands_in(README):
        if any(word.startswith("recordings/") for word in words):
            done = inside.run(*words, *(["--once"] if words[0] == "replay" else []))
            assert done.returncode in (0, 3), (words, done.stderr)
            assert done.stdout
            ran.add(words[0])
    assert ran == {"replay", "explain", "diff"}


def test_the_readme_names_targets_that_there_are_and_the_pages_all_of_them() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    named = set(
        re.findall(r"^(?:sudo )?make ([a-z-]+)|&& sudo make ([a-z-]+)", README.read_text(), re.MULTILINE)
    )
    assert {"run", "test", "install"} <= {one for pair in named for one in pair if one} <= targets
    text = (ROOT / "docs/contributing.md").read_text(encoding="utf-8")
    assert [target for target in targets - {"dev"} if f"`make {target}`" not in text] == []


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:\s]+)[)#]", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} points to {link}"
