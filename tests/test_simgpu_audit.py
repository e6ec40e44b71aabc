"""The simulated libraries win over those that a program finds by its RPATH, and come only where requested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.simgpu import ensure_built, environment

_OWN = "int cudaRuntimeGetVersion(int *v) { *v = 7; return 0; }\n"
_PROGRAM = """
#include <stdio.h>
int cudaRuntimeGetVersion(int *);
int main(void) { int v = 0; cudaRuntimeGetVersion(&v); printf("%d\\n", v); return 0; }
"""
_LOADED = """
import re
print(sorted(set(re.findall(r"/simgpu-\\w+/(.*)", open("/proc/self/maps").read()))))
"""
_VERSION = """
import ctypes
v = ctypes.c_int()
ctypes.CDLL("{path}").cudaRuntimeGetVersion(ctypes.byref(v))
print(v.value)
"""


def compiled(text: str, output: Path, *flags: str) -> Path:
    source = output.with_name(output.name + ".c")
    source.write_text(text)
    subprocess.run(["cc", "-o", str(output), str(source), *flags], check=True)
    return output


def output(*command: str, **env: str) -> str:
    """What a program says in the environment of the simulated GPU."""
    return subprocess.run(
        command, env=environment(os.environ) | env, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A folder as a wheel of NVIDIA's has it, with a runtime that is not the simulated one."""
    folder = tmp_path / "nvidia" / "lib"
    folder.mkdir(parents=True)
    compiled(_OWN, folder / "libcudart.so.12", "-shared", "-fPIC", "-Wl,-soname,libcudart.so.12")
    return folder


@pytest.fixture
def program(wheel: Path, tmp_path: Path) -> str:
    rpath = f"-Wl,--disable-new-dtags,-rpath,{wheel}"
    return str(compiled(_PROGRAM, tmp_path / "program", str(wheel / "libcudart.so.12"), rpath))


def test_an_rpath_does_not_win_over_the_simulated_runtime(program: str) -> None:
    assert subprocess.check_output([program], text=True) == "7\n"
    assert output(program, LD_AUDIT="") == "7", "LD_LIBRARY_PATH alone does not do"
    assert int(output(program)) >= 12000


def test_a_full_path_into_a_wheel_leads_to_the_simulated_runtime(wheel: Path) -> None:
    assert int(output(sys.executable, "-c", _VERSION.format(path=wheel / "libcudart.so.12"))) >= 12000


def test_a_full_path_to_elsewhere_leads_there(wheel: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "libcudart.so.12"
    elsewhere.write_bytes((wheel / "libcudart.so.12").read_bytes())
    assert output(sys.executable, "-c", _VERSION.format(path=elsewhere)) == "7"


def test_a_program_that_asks_for_nothing_gets_nothing() -> None:
    assert output(sys.executable, "-c", _LOADED) == "['libgputop-simgpu-audit.so']"


def test_an_audit_that_is_set_already_goes_on() -> None:
    ours = ensure_built() / "libgputop-simgpu-audit.so"
    assert environment({"LD_AUDIT": "/lib/other.so"})["LD_AUDIT"] == f"{ours}:/lib/other.so"
