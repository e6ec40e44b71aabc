"""The kit runs as root wherever somebody stands: no link of others is followed, no code of theirs taken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu_check.machine import Machine, PartError
from tests.gpu_check.results_folder import claim, tidy

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "gpu_check.sh"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of other users are made")
SOMEBODY = 1234


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody can write, as /tmp."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


def test_results_go_to_no_folder_that_another_user_laid(shared: Path) -> None:
    victim = shared / "victim"
    victim.mkdir()
    (shared / "link").symlink_to(victim)
    theirs = shared / "theirs"
    theirs.mkdir()
    os.chown(theirs, SOMEBODY, SOMEBODY)
    open_to_all = shared / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for place in (shared / "link", theirs, open_to_all):
        assert "is a link, no folder, or one that others can write" in claim(place)
    assert str(theirs) in claim(theirs / "results")
    assert str(open_to_all) in claim(open_to_all / "results")
    assert not list(victim.iterdir())
    assert claim(shared / "new") == ""
    assert claim(shared / "new") == "", "an earlier start's"


def test_results_of_who_called_sudo_go_to_a_folder_of_theirs(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shared / "home"
    home.mkdir()
    os.chown(home, SOMEBODY, SOMEBODY)
    assert claim(home / "results")
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    assert claim(home / "results") == ""


def test_tidying_up_takes_nothing_else_away(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "thesis.tex").write_text("years")
    assert "has other files" in claim(work)
    (work / "results.json").write_text("{}")
    (work / "a-before.msgpack").write_text("")
    (work / "b.msgpack").write_text("")
    assert claim(work) == ""
    tidy(work, {"results.json", "a-before.msgpack"})
    assert sorted(path.name for path in work.iterdir()) == ["a-before.msgpack", "results.json", "thesis.tex"]


def test_no_module_of_the_folder_where_root_stands_is_imported(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shared / "torch.py").write_text(f"open({str(shared / 'ran')!r}, 'w')")
    monkeypatch.chdir(shared)
    with pytest.raises(PartError):
        print(Machine(sys.executable, False, shared).facts)
    assert not (shared / "ran").exists()


def test_no_word_of_the_command_line_but_the_named_python_is_run(shared: Path) -> None:
    text = SCRIPT.read_text()
    unpacked = text[text.index("unpacked() {") : text.index("\n}\n", text.index("unpacked() {")) + 3]
    for name in ("results", "named"):
        (shared / name).write_text(f"#!/bin/sh\necho {name} >>{shared}/ran\nexit 0\n")
        (shared / name).chmod(0o755)
    words = ["-o", str(shared / "results"), "--python", str(shared / "named")]
    code = f'place={shared} here={shared}\n{unpacked}\nunpacked "$@"'
    subprocess.run(["bash", "-c", code, "gpu-check", *words], check=True, cwd=shared)
    assert (shared / "ran").read_text() == "named\n"
