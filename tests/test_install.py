"""Installation from a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from gputop.commands.command import VERSION
from tests.conftest import skip_or_fail
from tests.rootless_support import NOBODY
from tests.waiting import until_good

ROOT = Path(__file__).resolve().parent.parent


def make(*arguments: str, checkout: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs make in a checkout."""
    if shutil.which("make") is None:
        skip_or_fail("make not found: apt-get install make")
    # a make around the tests must not hand down its own flags and variables
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PREFIX"))
    }
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=checkout,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def ready() -> None:
    """The checkout has been set up, as after any make target."""
    done = make("setup")
    if done.returncode != 0:
        skip_or_fail(f"make setup fails: {done.stderr[-500:]}")


DISTRIBUTION = Path("/usr/bin/python3")  # what bcc is a package of


def chosen(*within: str) -> str:
    """Which Python environments are made of."""
    return subprocess.run(
        [*within, ROOT / "scripts/python.sh"], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_environments_are_made_of_the_distributions_python() -> None:
    asked = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))"
    able = DISTRIBUTION.exists() and subprocess.run([DISTRIBUTION, "-c", asked], check=False).returncode == 0
    assert chosen() == (str(DISTRIBUTION) if able else "python3")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to put another file in its place")
def test_where_the_distributions_makes_none_they_are_made_of_what_is_in_the_path(tmp_path: Path) -> None:
    if not DISTRIBUTION.exists():
        skip_or_fail("no Python of the distribution")
    (old := tmp_path / "old").write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    in_its_place = f'mount --bind {old} {DISTRIBUTION.resolve()} && exec "$@"'
    assert chosen("unshare", "--mount", "sh", "-c", in_its_place, "sh") == "python3"


@pytest.mark.timed
@pytest.mark.usefixtures("ready")
def test_a_second_setup_changes_nothing_and_is_quick() -> None:
    def took() -> float:
        began = time.monotonic()
        done = make("setup")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return time.monotonic() - began

    assert until_good(took, lambda seconds: seconds < 3) < 3


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of a user's: what root installs from it is root's nevertheless."""
    folder = tmp_path_factory.mktemp("checkout")
    left_out = shutil.ignore_patterns("__pycache__")
    for name in ("gputop", "probes", "replay", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", str(NOBODY), folder], check=True)
    return folder


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Path:
    """Where gputop was installed from that checkout, which is broken since."""
    folder = tmp_path_factory.mktemp("prefix") / "my own"
    before = everything_in(checkout)
    done = make("install", f"PREFIX={folder}", checkout=checkout)
    if done.returncode != 0:
        skip_or_fail(f"make install fails: {done.stderr[-500:]}")
    assert everything_in(checkout) == before, "the checkout stays as it was"
    for name in ("gputop", "probes", "replay"):
        (checkout / name / "__init__.py").write_text("raise SystemExit('the user's code')\n")
    return folder


def everything_in(folder: Path) -> set[Path]:
    """All files and folders below one."""
    return set(folder.rglob("*"))


@pytest.mark.long
@pytest.mark.long
def test_what_was_installed_does_not_change_with_the_checkout(prefix: Path) -> None:
    done = subprocess.run([prefix / "bin/gputop", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"gputop {VERSION}\n"
    for path in everything_in(prefix):
        facts = path.lstat()
        assert facts.st_uid == os.geteuid(), path
        assert path.is_symlink() or not facts.st_mode & 0o022, path


@pytest.mark.long
def test_the_launcher_needs_nothing_of_its_environment(prefix: Path, tmp_path: Path) -> None:
    # code in the current folder must not get into a program that runs as root
    (tmp_path / "gputop.py").write_text("raise SystemExit('the wrong gputop')\n")
    (tmp_path / "argparse.py").write_text("raise SystemExit('the wrong argparse')\n")
    for words in (["--version"], ["simgpu", "--help"], ["demo"]):
        done = subprocess.run(
            ["env", "-i", f"PYTHONPATH={tmp_path}", prefix / "bin/gputop", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "gputop" in done.stdout or "healthy" in done.stdout


@pytest.mark.long
def test_an_installation_stands_below_destdir_and_goes_again(prefix: Path, tmp_path: Path) -> None:
    # as a packager does; not built again, which takes long
    below = tmp_path / str(prefix)[1:]
    shutil.copytree(prefix, below, symlinks=True)
    (tmp_path / "kept").touch()
    done = make("uninstall", f"DESTDIR={tmp_path}", f"PREFIX={prefix}")
    assert done.returncode == 0, done.stderr
    assert [path for path in everything_in(below) if not path.is_dir()] == []
    assert (prefix / "bin/gputop").exists()
    assert (tmp_path / "kept").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: needs root")
def test_root_installs_nothing_where_others_could_change_it(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    done = make("install", f"PREFIX={tmp_path}/own")
    assert done.returncode != 0
    assert f"{tmp_path} can be changed by others" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("ready")
def test_somebody_elses_program_is_not_replaced(tmp_path: Path) -> None:
    for name in ("bin/gputop", "lib/gputop/file"):
        other = tmp_path / name.replace("/", "-") / "usr/local" / name
        other.parent.mkdir(parents=True)
        other.write_text("something else\n")
        for target in ("install", "uninstall"):
            done = make(target, f"DESTDIR={tmp_path / name.replace('/', '-')}")
            assert done.returncode != 0
            assert "is something else" in done.stderr
        assert other.read_text() == "something else\n"
