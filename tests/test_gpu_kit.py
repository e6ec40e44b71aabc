"""What the kit for real GPUs is made of: libraries that others load, and stand-ins for two large ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import gpu_kit


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A library that wants one function of two that another one has, with a version."""
    (tmp_path / "big.c").write_text("int wanted(void) { return 1; }\nint other(void) { return 2; }\n")
    (tmp_path / "big.map").write_text("BIG_1.0 { global: wanted; other; };\n")
    (tmp_path / "user.c").write_text("int wanted(void);\nint use(void) { return wanted(); }\n")
    versions = f"-Wl,--version-script={tmp_path / 'big.map'}"
    big = [
        "gcc",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libbig.so.1",
        versions,
        "-o",
        str(tmp_path / "libbig.so.1"),
    ]
    subprocess.run([*big, str(tmp_path / "big.c")], check=True)
    made = tmp_path / "libuser.so"
    use = [
        "gcc",
        "-shared",
        "-fPIC",
        "-o",
        str(made),
        str(tmp_path / "user.c"),
        str(tmp_path / "libbig.so.1"),
    ]
    subprocess.run([*use, f"-Wl,-rpath,{tmp_path}"], check=True)
    return made


def test_a_stand_in_has_what_is_wanted_in_its_version_and_ends_the_program(user: Path, tmp_path: Path):
    stub = tmp_path / "stub" / "libbig.so.1"
    stub.parent.mkdir()
    gpu_kit.write_stub("libbig.so.1", [user], stub)
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(stub)], capture_output=True, text=True, check=True
    )
    assert re.findall(r" T (\S+)", symbols.stdout) == ["wanted@@BIG_1.0"]
    (tmp_path / "libbig.so.1").unlink()
    stub.rename(tmp_path / "libbig.so.1")
    loads = f"import ctypes; library = ctypes.CDLL({str(user)!r}); print('loaded', flush=True); library.use()"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=False)
    assert done.stdout == "loaded\n"
    assert done.returncode == -6


def test_what_libraries_load_is_found_to_the_end(user: Path):
    found = gpu_kit.needed([user])
    assert found["libbig.so.1"].name == "libbig.so.1"
    assert "libc.so.6" in gpu_kit.needed([Path(sys.executable).resolve()])


def test_gputop_s_packages_are_in_it_with_what_they_need():
    found = gpu_kit.packages()
    assert {"textual", "numpy", "msgpack", "nvidia-ml-py", "rich", "typing-extensions"} <= found.keys()
    assert "pytest" not in found


@pytest.mark.parametrize(
    "name", ["__pycache__", "numpy/tests", "lib/libx.a", "lib-dynload/_ssl.cpython-311.so"]
)
def test_what_nothing_uses_is_left_out(name: str):
    assert gpu_kit.LEFT_OUT.search(name)
    assert not gpu_kit.LEFT_OUT.search("numpy/testing")


def test_a_tool_that_is_missing_is_named_with_what_installs_it(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(gpu_kit.KitError, match="ldd is not installed: apt-get install libc-bin"):
        gpu_kit.write_stub("libbig.so.1", [user], tmp_path / "stub.so")
