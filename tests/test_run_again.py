"""scripts/test.sh runs what failed beside others again, alone; what fails then, too, fails the run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow
# it fails the first time: whoever comes after finds the file
ONCE = """
from pathlib import Path
def test_{name}():
    seen = Path("{name}.seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
MARKERS = "markers =\n" + "".join(f"    {name}:\n" for name in ("timed", "long"))
MARKED = "import pytest\npytestmark = pytest.mark.{}\n"


def run(folder: Path, again: str = "1", **modules: str) -> tuple[int, str]:
    """The exit status and the output of the script over a project with these test modules."""
    (folder / "scripts").mkdir()
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "scripts/test.sh", folder / "scripts")
    (folder / ".venv").symlink_to(ROOT / ".venv")
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n" + MARKERS)
    # each part of a run has one that passes
    sound = {"sound": "", "of_time": MARKED.format("timed")}
    for name, text in (
        {name: f"{mark}def test_{name}(): pass\n" for name, mark in sound.items()} | modules
    ).items():
        (folder / f"tests/test_{name}.py").write_text(text)
    done = subprocess.run(
        ["bash", "scripts/test.sh"],
        cwd=folder,
        env={name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
        | {"TEST_AGAIN": again, "TEST_LIMIT_S": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.long
def test_what_passes_alone_fails_no_run_and_is_told_last(tmp_path: Path) -> None:
    status, said = run(tmp_path, once=ONCE.format(name="once"))
    assert status == 0, said
    assert said.splitlines()[-2:] == [
        "test: failed beside others, passed alone (each is to be mended):",
        "tests/test_once.py::test_once",
    ]


@pytest.mark.long
def test_what_fails_again_fails_the_run(tmp_path: Path) -> None:
    never = "def test_never(): assert False\n"
    status, said = run(tmp_path, never=never, of_time=MARKED.format("timed") + ONCE.format(name="of_time"))
    assert status == 1
    assert "tests/test_never.py::test_never" in said
    assert (
        said.partition("passed alone (each is to be mended):\n")[2] == "tests/test_of_time.py::test_of_time\n"
    )


@pytest.mark.long
def test_many_failures_are_no_chance(tmp_path: Path) -> None:
    many = "".join(ONCE.format(name=f"once{number}") for number in range(13))
    status, said = run(tmp_path, many=many)
    assert status == 1
    assert "run again alone" not in said


@pytest.mark.long
def test_nothing_is_run_again_where_that_is_not_wanted(tmp_path: Path) -> None:
    status, said = run(tmp_path, again="0", of_time=MARKED.format("timed") + ONCE.format(name="of_time"))
    assert status == 1
    assert "run again alone" not in said
