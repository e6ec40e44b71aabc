"""scripts/test.sh: a test that fails once fails the run, whether it measures times or not."""

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


def run(folder: Path, **modules: str) -> tuple[int, str]:
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
        | {"TEST_LIMIT_S": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.long
@pytest.mark.parametrize("mark", ["", MARKED.format("timed")])
def test_a_failure_in_either_part_fails_the_run_and_nothing_runs_again(tmp_path: Path, mark: str) -> None:
    status, said = run(tmp_path, once=mark + ONCE.format(name="once"))
    assert status == 1
    assert said.count("FAILED tests/test_once.py::test_once") == 1


@pytest.mark.long
def test_a_sound_project_passes(tmp_path: Path) -> None:
    assert run(tmp_path)[0] == 0
