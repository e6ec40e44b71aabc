"""``make torch-cuda`` writes a library for each of NVIDIA's that a wheel needs and nobody has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.simgpu import environment
from scripts.torch_stubs import write_stubs

_WHEEL = """
int cufftPlanMany(int), cuFileRead(int), cublasSsyrkx(int), cudaPeekAtLastError(void);
int plan(void) { return cufftPlanMany(1); }
int others(void) { return cuFileRead(1) + cublasSsyrkx(1) + cudaPeekAtLastError(); }
"""
_CALLS = """
import ctypes, sys
wheel = ctypes.CDLL(sys.argv[1])
print(wheel.plan(), wheel.plan())
"""


def compiled(text: str, output: Path, *flags: str) -> Path:
    source = output.with_name(output.name + ".c")
    source.write_text(text)
    command = ["cc", "-shared", "-fPIC", "-o", str(output), str(source), *flags]
    subprocess.run(command, check=True)
    source.unlink()
    return output


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A library that needs two of NVIDIA's, one with versions of its names, and two that are simulated."""
    folder, links = tmp_path / "site" / "torch" / "lib", tmp_path / "links"
    folder.mkdir(parents=True)
    links.mkdir()
    script = links / "map"
    script.write_text("libcufft.so.12 { global: cufftPlanMany; };\n")
    versioned = [f"-Wl,--version-script={script}"]
    needed = []
    for soname, name in (("libcufft.so.12", "cufftPlanMany"), ("libcufile.so.0", "cuFileRead")):
        flags = versioned if "cufft" in soname else []
        text = f"int {name}(int a) {{ return a; }}\n"
        needed.append(str(compiled(text, links / soname, f"-Wl,-soname,{soname}", *flags)))
    simulated = Path(environment({})["LD_LIBRARY_PATH"])
    needed += [str(simulated / soname) for soname in ("libcublas.so.13", "libcudart.so.13")]
    rpath = "-Wl,-rpath,$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN"
    compiled(_WHEEL, folder / "libtorch_cuda.so", *needed, rpath)
    shutil.rmtree(links)
    return tmp_path / "site"


def test_what_is_missing_is_written_where_the_rpath_finds_it(wheel: Path) -> None:
    written = write_stubs(wheel)
    assert {path.name for path in written} == {"libcufft.so.12", "libcufile.so.0"}
    assert {path.parent for path in written} == {wheel / "nvidia" / "cudnn" / "lib"}


def test_a_stub_says_once_that_it_is_not_simulated(wheel: Path) -> None:
    write_stubs(wheel)
    command = [sys.executable, "-c", _CALLS, str(wheel / "torch" / "lib" / "libtorch_cuda.so")]
    done = subprocess.run(command, env=environment(os.environ), capture_output=True, text=True, check=True)
    assert done.stdout == "16 16\n", "not supported, in cuFFT's numbers"
    assert done.stderr == "gputop simgpu: cufftPlanMany is not simulated\n"
