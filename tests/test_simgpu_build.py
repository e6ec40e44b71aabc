"""The libraries are built where nobody else can change them, or not at all, with a clear word."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.process import c_build
from gputop.process.c_build import BuildError
from gputop.simgpu import environment, library_build, nvml_path


@pytest.fixture(autouse=True)
def no_build_of_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user has no use for what root may have built on this machine."""
    if os.geteuid() != 0:
        monkeypatch.setattr(c_build, "ROOT_CACHE", Path("/nonexistent"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that already holds the libraries."""
    built = library_build.ensure_built()
    shutil.copytree(built, tmp_path / built.name)
    monkeypatch.setattr(c_build, "cache_root", lambda: tmp_path)
    return tmp_path


def test_no_compiler_names_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_build, "cache_root", lambda: tmp_path)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BuildError, match="apt-get install gcc libc6-dev"):
        library_build.ensure_built()


def test_what_is_built_needs_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert library_build.ensure_built().parent == cache


def test_a_place_that_others_can_write_to_is_refused(cache: Path) -> None:
    (cache / library_build.ensure_built().name / "libcuda.so.1").chmod(0o666)
    if os.geteuid() != 0:
        pytest.skip("only root insists on modes")
    with pytest.raises(BuildError, match="not safe"):
        library_build.ensure_built()


def test_a_library_of_somebody_else_is_refused(cache: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.chown(library_build.ensure_built() / "libcuda.so.1", 65534, 65534)
    with pytest.raises(BuildError, match="not safe"):
        library_build.ensure_built()


@pytest.mark.long
def test_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        library_build, "COMPILER_FLAGS", (*library_build.COMPILER_FLAGS, "-O0")
    )  # as good here, and much sooner
    monkeypatch.setattr(c_build, "cache_root", lambda: tmp_path)
    first = library_build.ensure_built()
    stamp = (first / "libcuda.so.1").stat().st_mtime_ns
    assert library_build.ensure_built() == first
    assert (first / "libcuda.so.1").stat().st_mtime_ns == stamp
    assert [path.name for path in tmp_path.iterdir()] == [first.name], "nothing half-built is left"


def test_with_endbr64_it_is_another_build() -> None:
    assert library_build.ensure_built(endbr=True) != library_build.ensure_built()


def test_a_user_builds_in_the_users_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = library_build.ensure_built()  # as whoever runs the tests
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() or 12345)
    monkeypatch.setattr(c_build, "ROOT_CACHE", tmp_path / "nothing")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shutil.copytree(built, tmp_path / "gputop" / built.name)
    assert library_build.ensure_built() == tmp_path / "gputop" / built.name
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    shutil.copytree(built, tmp_path / "home" / ".cache" / "gputop" / built.name)
    assert library_build.ensure_built().parent == tmp_path / "home" / ".cache" / "gputop"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(c_build, "cache_root", lambda: tmp_path / "file")
    with pytest.raises(BuildError, match=str(tmp_path)):
        library_build.ensure_built()


def test_a_running_program_can_choose_the_simulated_nvml() -> None:
    body = (
        "import ctypes, sys; ctypes.CDLL(sys.argv[1]); import pynvml; pynvml.nvmlInit()\n"
        "print(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)))"
    )
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    command = [sys.executable, "-c", body, str(nvml_path())]
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert out == "SimGPU 80GB\n"


def test_programs_find_the_simulation_first() -> None:
    env = environment({"LD_LIBRARY_PATH": "/opt/lib", "A": "b"})
    assert env.pop("LD_LIBRARY_PATH") == f"{nvml_path().parent}:/opt/lib"
    assert Path(env.pop("LD_AUDIT")).parent == nvml_path().parent
    assert env == {"A": "b"}
    assert environment({})["LD_LIBRARY_PATH"] == str(nvml_path().parent)
