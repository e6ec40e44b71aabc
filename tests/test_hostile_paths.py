"""Root runs gputop where somebody else has prepared folder and environment: no code comes from there."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gputop.process import c_build, isolation
from gputop.process.c_build import BuildError, compile_c
from gputop.process.path_trust import trusted_path, weak_part
from gputop.simgpu import library_build
from tests.cli_support import write_recording
from tests.rootless_support import NOBODY
from tests.waiting import HANGS_S

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: needs root")

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(sys.executable).with_name("gputop")
WRITES = "import os; os.close(os.open({mark!r}, os.O_CREAT)); raise SystemExit('taken over')\n"
OURS = ("gputop", "probes", "replay")
OTHERS = ("numpy", "msgpack", "textual", "rich", "pynvml", "argparse", "ctypes", "multiprocessing")


class Trap:
    """A folder of nobody's with modules that leave a mark when they are imported."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder / "trap", folder / "taken"
        for parent in (folder, *folder.parents[:3]):
            parent.chmod(parent.stat().st_mode | 0o055)
        self.folder.mkdir()
        os.chown(self.folder, NOBODY, NOBODY)

    def set(self, *modules: str) -> None:
        """Puts modules and packages of these names there."""
        for module in modules:
            (self.folder / module).mkdir()
            (self.folder / module / "__init__.py").write_text(WRITES.format(mark=str(self.mark)))

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command in the folder."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=False,
        )
        assert not self.mark.exists(), "what is in the folder was run"
        return done


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


# -- the interpreters that gputop starts -----------------------------------------------------------


def test_a_demo_takes_nothing_from_the_folder_it_is_started_in(trap: Trap) -> None:
    trap.set(*OURS, *OTHERS)
    done = trap.run(str(SCRIPT), "demo", "healthy", "--alone", "--duration", "0.2")
    assert done.returncode == 0, done.stderr
    assert "steps in" in done.stdout


def test_a_demo_takes_nothing_from_the_environment(trap: Trap) -> None:
    trap.set(*OTHERS)
    (trap.folder / "sitecustomize.py").write_text("")
    done = trap.run(
        str(SCRIPT), "demo", "healthy", "--alone", "--duration", "0.2", env={"PYTHONPATH": str(trap.folder)}
    )
    assert done.returncode == 0, done.stderr


def test_the_command_that_is_named_for_sudo_takes_nothing_from_the_folder(trap: Trap) -> None:
    trap.set(*OURS, *OTHERS)
    done = trap.run(*isolation.isolated("gputop"), "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gputop ")


# -- our own interpreter ---------------------------------------------------------------------------


@pytest.mark.parametrize("start", [(str(SCRIPT),), (sys.executable, "-m", "gputop")])
def test_a_python_path_gives_root_no_code(trap: Trap, tmp_path: Path, start: tuple[str, ...]) -> None:
    recording = write_recording(tmp_path / "s")
    trap.set(*OTHERS)
    done = trap.run(*start, "stats", str(recording), env={"PYTHONPATH": str(trap.folder)})
    assert done.returncode == 0, done.stderr
    assert "python train.py" in done.stdout


def test_the_working_folder_gives_root_no_code(trap: Trap, tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "s")
    trap.set(*OTHERS)
    done = trap.run(sys.executable, "-m", "gputop", "stats", str(recording))
    assert done.returncode == 0, done.stderr


def test_a_user_s_packages_give_root_no_code(trap: Trap, tmp_path: Path) -> None:
    """As site.py adds them where sudo keeps HOME or PYTHONUSERBASE; no virtual environment has them."""
    packages = trap.folder / f"lib/python3.{sys.version_info[1]}/site-packages"
    packages.mkdir(parents=True)
    (packages / "msgpack.py").write_text(WRITES.format(mark=str(trap.mark)))
    os.chown(packages, NOBODY, NOBODY)
    recording = write_recording(tmp_path / "s")
    start = f"import sys; sys.path.insert(0, {str(packages)!r})\n"
    start += "from gputop.__main__ import main; sys.exit(main())"
    done = trap.run(sys.executable, "-c", start, "stats", str(recording))
    assert done.returncode == 0, done.stderr


def test_a_folder_that_an_editable_installation_names_by_accident_gives_no_code(trap: Trap) -> None:
    (trap.folder / "__editable__.gputop-0.1.0.finder.__path_hook__").mkdir()
    check = "import sys; from gputop.process.isolation import isolate; isolate(); print(*sys.path, sep='\\n')"
    folders = trap.run(sys.executable, "-I", "-c", check).stdout.split()
    assert folders
    assert all(folder.startswith("/") for folder in folders)


def test_isolated_or_not_arguments_status_and_name_are_the_same(trap: Trap) -> None:
    env = {"PYTHONPATH": str(trap.folder)}
    assert trap.run(str(SCRIPT), "--pid", "a b", env=env).returncode == 2
    plain, again = (trap.run(str(SCRIPT), "stats", "no such\tfile", env=one) for one in ({}, env))
    assert (plain.returncode, plain.stderr) == (again.returncode, again.stderr)
    assert "no such" in again.stderr
    report = "import sys; from gputop.process.isolation import isolate; isolate(); print('not isolated')"
    assert trap.run(sys.executable, "-c", report, "--version", env=env).stdout.startswith("gputop ")


def test_isolated_the_terminal_is_kept(trap: Trap) -> None:
    master, slave = pty.openpty()
    library_build.ensure_built()
    environment = os.environ | {"PYTHONPATH": "/x"}
    # says more on a terminal
    subprocess.run([SCRIPT, "simgpu"], stdin=slave, stdout=slave, stderr=slave, env=environment, check=True)
    os.close(slave)
    assert b"LD_LIBRARY_PATH" in os.read(master, 65_536)
    os.close(master)


def test_an_interpreter_that_nobody_else_can_give_code_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    monkeypatch.setattr(sys, "path", ["/usr/lib/python3", "/usr/lib/python3.zip"])
    monkeypatch.setattr(os, "execv", lambda *words: pytest.fail("a start more than is needed"))
    isolation.isolate()


# -- who could change what -------------------------------------------------------------------------


def test_the_weak_part_of_a_way_is_found(trap: Trap, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "into").symlink_to(trap.folder)
    (trap.folder / "back").symlink_to(tmp_path / "mine")
    os.chown(trap.folder / "back", NOBODY, NOBODY, follow_symlinks=False)
    (tmp_path / "group").mkdir()
    (tmp_path / "group").chmod(0o775)
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    (tmp_path / "sticky" / "mine").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for good in ("mine", "mine/not there", "mine/../mine", "sticky/mine"):
        assert weak_part(str(tmp_path / good)) == "", good
    for bad, weak in {
        "trap": "trap",
        "trap/x": "trap",
        "into": "trap",
        "group": "group",
        "sticky": "sticky",
        "sticky/not there": "sticky",
        "loop": "loop",
    }.items():
        assert weak_part(str(tmp_path / bad)) == str(tmp_path / weak), bad
    assert [weak_part(word) for word in ("", "relative")] == [".", "relative"]
    assert trusted_path(f"/usr/bin:{trap.folder}::bin:/bin") == "/usr/bin:/bin"


# -- the simulated GPU's compiler and cache --------------------------------------------------------


def test_root_s_compiler_is_not_one_that_a_user_has_put_into_the_search_path(
    trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cc", "gcc", "as", "ld"):
        (trap.folder / name).write_text(f"#!/bin/sh\n: >{trap.mark}\nexit 1\n")
        (trap.folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{trap.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("COMPILER_PATH", str(trap.folder))
    (tmp_path / "a.c").write_text("int a;\n")
    compile_c("it", tmp_path / "a.so", str(tmp_path / "a.c"))
    assert not trap.mark.exists()
    monkeypatch.setenv("PATH", str(trap.folder))
    with pytest.raises(BuildError, match="apt-get install gcc"):
        compile_c("it", tmp_path / "a.so", str(tmp_path / "a.c"))


def test_a_cache_in_which_others_can_put_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sticky folder keeps others from replacing libraries, not from adding one that a program asks for."""
    built = library_build.ensure_built()
    copy = tmp_path / built.name
    subprocess.run(["cp", "-a", built, copy], check=True)
    copy.chmod(stat.S_ISVTX | 0o777)
    monkeypatch.setattr(c_build, "cache_root", lambda: tmp_path)
    with pytest.raises(BuildError, match="not safe"):
        library_build.ensure_built()
