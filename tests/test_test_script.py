"""scripts/test.sh runs both parts once; a failure in either fails the run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MARKERS = "markers =\n" + "".join(f"    {name}:\n" for name in ("timed", "long"))
# it would pass a second time
TEST = """
import pytest
from pathlib import Path
{mark}
def test_{name}():
    with open("{name}.runs", "a") as runs:
        runs.write(".")
    assert "{name}" != "{failing}" or Path("{name}.runs").stat().st_size > 1
"""


@pytest.mark.long
@pytest.mark.parametrize("failing", ["other", "timed"])
def test_a_failure_in_either_part_fails_the_run_and_nothing_is_run_again(
    tmp_path: Path, failing: str
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "scripts/test.sh", tmp_path / "scripts")
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n" + MARKERS)
    for name, mark in (("other", ""), ("timed", "@pytest.mark.timed")):
        text = TEST.format(name=name, mark=mark, failing=failing)
        (tmp_path / f"tests/test_{name}.py").write_text(text)
    done = subprocess.run(
        ["bash", "scripts/test.sh"],
        cwd=tmp_path,
        env={name: text for name, text in os.environ.items() if not name.startswith("PYTEST")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert {name: (tmp_path / f"{name}.runs").read_text() for name in ("other", "timed")} == {
        "other": ".",
        "timed": ".",
    }
