"""Installation from a checkout, and that the documentation tells what is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import skip_or_fail

from gputop import cli

ROOT = Path(__file__).resolve().parent.parent


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs make in the checkout."""
    if shutil.which("make") is None:
        skip_or_fail("make not found: apt-get install make")
    # a make around the tests must not hand down its own flags and variables
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PREFIX"))
    }
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture(scope="module")
def ready() -> None:
    """The checkout has been set up, as after any make target."""
    done = make("setup")
    if done.returncode != 0:
        skip_or_fail(f"make setup fails: {done.stderr[-500:]}")


@pytest.mark.usefixtures("ready")
def test_a_second_setup_changes_nothing_and_is_quick() -> None:
    began = time.monotonic()
    done = make("setup")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - began < 3


@pytest.mark.usefixtures("ready")
def test_the_launcher_needs_nothing_of_its_environment(tmp_path: Path) -> None:
    assert make("install", f"DESTDIR={tmp_path}").returncode == 0
    launcher = tmp_path / "usr/local/bin/gputop"
    # code in the current folder must not get into a program that runs as root
    (tmp_path / "gputop.py").write_text("raise SystemExit('the wrong gputop')\n")
    (tmp_path / "argparse.py").write_text("raise SystemExit('the wrong argparse')\n")
    for words in (["--version"], ["simgpu", "--help"]):
        done = subprocess.run(
            ["env", "-i", str(launcher), *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "gputop" in done.stdout
    assert make("uninstall", f"DESTDIR={tmp_path}").returncode == 0
    assert not launcher.exists()


@pytest.mark.usefixtures("ready")
def test_the_prefix_may_be_anywhere_and_hold_blanks(tmp_path: Path) -> None:
    prefix = tmp_path / "my own"
    assert make("install", f"PREFIX={prefix}").returncode == 0
    done = subprocess.run([prefix / "bin/gputop", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"gputop {cli.program_version()}\n"


@pytest.mark.usefixtures("ready")
def test_somebody_elses_program_is_not_replaced(tmp_path: Path) -> None:
    other = tmp_path / "usr/local/bin/gputop"
    other.parent.mkdir(parents=True)
    other.write_text("something else\n")
    for target in ("install", "uninstall"):
        done = make(target, f"DESTDIR={tmp_path}")
        assert done.returncode != 0
        assert "is something else" in done.stderr
    assert other.read_text() == "something else\n"


# -- the documentation ----------------------------------------------------------------------------


def test_the_house_map_lists_every_file() -> None:
    text = (ROOT / "docs/design.md").read_text()
    listed = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    there = {
        str(path.relative_to(ROOT))
        for package in ("gputop", "probes", "replay")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert there - listed == set(), "files that docs/design.md does not mention"
    assert {name for name in listed - there if name.endswith(".py")} == set(), "files that are gone"


def test_the_readme_names_every_command_and_target() -> None:
    text = (ROOT / "README.md").read_text()
    for name in cli._COMMANDS:
        assert f"`gputop {name}" in text
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
    for target in set(targets) - {"dev"}:
        assert f"make {target}" in text


def test_the_pages_that_are_pointed_to_exist() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} points to {link}"
