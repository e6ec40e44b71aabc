"""Makes stubs of NVIDIA's libraries that a CUDA wheel of PyTorch links and the simulated GPU lacks.

``python -m scripts.torch_stubs SITE_PACKAGES`` reads which symbols the wheel's libraries need, and compiles,
into the first folder of their RPATH, one library for each name, with just the functions that the wheel uses.
Each reports once that it is not simulated, and fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from gputop.simgpu import codegen, codegen_math, library_build

_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")
_RPATH = re.compile(r"\((?:RPATH|RUNPATH)\).*\[([^:\]]+)")
_REFUSE = Path(library_build.__file__).parent / "math_refuse.c"
#: "Not supported" in each library's own numbers; 1 is an error in all of them.
_REFUSALS = {
    "cufft": 16,
    "cusparse": 10,
    "cusparselt": 10,
    "cusolver": 9,
    "nvrtc": 11,
    "cufile": 5001,
}


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _stem(soname: str) -> str:
    """The beginning of a library's function names: ``nvshmem`` for ``libnvshmem_host.so.3``."""
    return soname.removeprefix("lib").partition(".so")[0].partition("_")[0].lower()


def missing_libraries(folder: Path) -> set[str]:
    """The names of NVIDIA's libraries that a folder's libraries need and that are missing."""
    libraries = sorted(folder.glob("*.so*"))
    needed = {
        name for library in libraries for name in _NEEDED.findall(_output("readelf", "-dW", str(library)))
    }
    there = {library.name for library in libraries} | {
        path.name for path in library_build.ensure_built().iterdir()
    }
    return {name for name in needed - there if name.startswith(("libcu", "libnv"))}


def wanted_symbols(folder: Path, sonames: set[str]) -> dict[str, dict[str, str]]:
    """Returns, for each library, the functions that are wanted of it with their version nodes ("": none)."""
    stems = sorted(((_stem(soname), soname) for soname in sonames), key=lambda pair: -len(pair[0]))
    wanted: dict[str, dict[str, str]] = defaultdict(dict)
    for library in sorted(folder.glob("*.so*")):
        for line in _output("nm", "-D", "--undefined-only", str(library)).splitlines():
            name, _, node = line.split()[-1].partition("@")
            owner = next((soname for stem, soname in stems if name.lower().startswith(stem)), None)
            if node in sonames:
                owner = node
            if owner is not None:
                wanted[owner][name] = node.lstrip("@")
    return wanted


def _compile(soname: str, symbols: dict[str, str], target: Path) -> None:
    names = sorted(symbols)
    nothing = codegen.Definitions(frozenset(), {}, frozenset())
    with tempfile.TemporaryDirectory() as work:
        assembly, script = Path(work) / "exports.S", Path(work) / "exports.map"
        assembly.write_text(codegen_math.math_exports(names, nothing, endbr=False), encoding="utf-8")
        nodes = defaultdict(list)
        for name in names:
            nodes[symbols[name]].append(name)
        texts = [codegen.version_map(node, nodes[node]) for node in sorted(nodes) if node]
        script.write_text("".join(texts).replace("  local: *;\n", ""), encoding="utf-8")
        command = ["cc", "-shared", "-fPIC", "-O2", "-fvisibility=hidden"]
        command += [f"-DSG_REFUSAL={_REFUSALS.get(_stem(soname), 1)}"]
        command += [f"-Wl,-soname,{soname}", "-o", str(target / soname), str(assembly), str(_REFUSE)]
        subprocess.run([*command, *([f"-Wl,--version-script={script}"] if texts else [])], check=True)


def write_stubs(site_packages: Path) -> list[Path]:
    """Compiles the libraries that the wheel in this folder lacks; returns their paths."""
    folder = site_packages / "torch" / "lib"
    (origin,) = _RPATH.findall(_output("readelf", "-dW", str(folder / "libtorch_cuda.so")))
    target = Path(origin.replace("$ORIGIN", str(folder))).resolve()
    target.mkdir(parents=True, exist_ok=True)
    sonames = missing_libraries(folder)
    wanted = wanted_symbols(folder, sonames)
    for soname in sorted(sonames):
        _compile(soname, wanted.get(soname, {}), target)
    return [target / soname for soname in sorted(sonames)]


if __name__ == "__main__":
    for path in write_stubs(Path(sys.argv[1])):
        print(path.name)
