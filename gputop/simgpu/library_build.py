"""Builds the simulated libraries at first use, into a cache keyed by all of their sources."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gputop.process import c_build
from gputop.process.c_build import BuildError, compile_c
from gputop.simgpu import codegen, codegen_math

_HERE = Path(__file__).resolve().parent
_WHAT = "The simulated GPU"
COMPILER_FLAGS = (
    "-std=gnu11",
    "-O2",
    "-g1",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-fno-omit-frame-pointer",
    "-fno-strict-aliasing",
    "-Wall",
)
_DRIVER_SOURCES = ("cu_*.c", "sg_*.c")
_NVML_SOURCES = ("nvml_*.c", "sg_*.c")
_NCCL_SOURCES = ("nccl_*.c", "sg_process.c")
_BLAS_SOURCES = ("math_*.c", "blas_*.c")
_LT_SOURCES = ("math_*.c", "blas_*.c", "lt_*.c")
_DNN_SOURCES = ("math_*.c", "dnn_*.c")
_CUPTI_SOURCES = ("cupti_*.c", "sg_process.c", "math_refuse.c")


@dataclass(frozen=True, slots=True)
class _Library:
    soname: str
    symbols: str
    sources: tuple[str, ...]
    major: int = 0
    versioned: bool = False
    refusal: int = 0  # of a mathematical library: what its functions return that are not simulated


_LIBRARIES = (
    _Library("libcuda.so.1", "cuda.txt", _DRIVER_SOURCES),
    _Library("libcudart.so.12", "cudart12.txt", ("rt_*.c",), major=12, versioned=True),
    _Library("libcudart.so.13", "cudart13.txt", ("rt_*.c",), major=13, versioned=True),
    _Library("libnvidia-ml.so.1", "nvml.txt", _NVML_SOURCES),
    _Library("libnccl.so.2", "nccl.txt", _NCCL_SOURCES),
    _Library("libcublas.so.12", "cublas12.txt", _BLAS_SOURCES, 12, versioned=True, refusal=15),
    _Library("libcublas.so.13", "cublas13.txt", _BLAS_SOURCES, 13, versioned=True, refusal=15),
    _Library("libcublasLt.so.12", "cublasLt12.txt", _LT_SOURCES, 12, versioned=True, refusal=15),
    _Library("libcublasLt.so.13", "cublasLt13.txt", _LT_SOURCES, 13, versioned=True, refusal=15),
    _Library("libcupti.so.11.8", "cupti.txt", _CUPTI_SOURCES, 11, versioned=True, refusal=27),
    _Library("libcupti.so.12", "cupti.txt", _CUPTI_SOURCES, 12, versioned=True, refusal=27),
    _Library("libcupti.so.13", "cupti.txt", _CUPTI_SOURCES, 13, versioned=True, refusal=27),
    _Library("libcudnn.so.9", "cudnn9.txt", _DNN_SOURCES, 9, versioned=True, refusal=3000),
)
AUDIT = "libgputop-simgpu-audit.so"


def symbols(name: str) -> list[str]:
    """Return a symbol list, for instance ``cudart13.txt``, in the order of its bytes."""
    return sorted((_HERE / "symbols" / name).read_text(encoding="utf-8").split())


def _sources(patterns: tuple[str, ...]) -> list[Path]:
    return sorted(path for pattern in patterns for path in _HERE.glob(pattern))


@lru_cache(maxsize=2)
def _key(*, endbr: bool) -> str:
    """Return the name of a build. The compiler is not part of it: a build works without one."""
    digest = hashlib.sha256(f"{COMPILER_FLAGS}\0{endbr}".encode())
    files = [*_HERE.glob("*.c"), *_HERE.glob("*.h"), *(_HERE / "symbols").glob("*.txt")]
    for path in sorted([*files, _HERE / "kernel_rules.txt", Path(__file__), *_HERE.glob("codegen*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _layout(library: _Library) -> codegen.LogLayout:
    """The log line of a library; runtime, driver and NCCL share the driver's."""
    if library.symbols == "nvml.txt":
        return codegen.log_layout("nvml", symbols("nvml.txt"), ())
    files = ("cudart12.txt", "cudart13.txt", "cuda.txt")
    names = {*codegen.own_names(symbols("nccl.txt")), *(name for file in files for name in symbols(file))}
    return codegen.log_layout("cuda", sorted(names), codegen.CUDA_TOTALS)


def _build_library(library: _Library, work: Path, out: Path, *, endbr: bool) -> None:
    sources = _sources(library.sources)
    definitions = codegen.read_definitions(sources)
    generated = work / f"gen-{library.soname}"
    generated.mkdir()
    write = _write_math if library.refusal else _write_counted
    units = [*sources, generated / "exports.S", *write(library, generated, definitions, endbr=endbr)]
    protection = "branch" if endbr else "none"
    flags = [*COMPILER_FLAGS, f"-fcf-protection={protection}", f"-DSG_MAJOR={library.major}"]
    flags += [f"-DSG_REFUSAL={library.refusal}"]
    if library.versioned:
        script = generated / "exports.map"
        script.write_text(codegen.version_map(library.soname, symbols(library.symbols)), encoding="utf-8")
        flags.append(f"-Wl,--version-script={script}")
    flags += [f"-I{generated}", f"-I{_HERE}", f"-Wl,-soname,{library.soname}", "-Wl,-z,now"]
    compile_c(_WHAT, out / library.soname, *flags, *map(str, units), "-ldl")


def _write_math(
    library: _Library, generated: Path, definitions: codegen.Definitions, *, endbr: bool
) -> list[Path]:
    assembly = codegen_math.math_exports(symbols(library.symbols), definitions, endbr=endbr)
    (generated / "exports.S").write_text(assembly, encoding="utf-8")
    return []


def _write_counted(
    library: _Library, generated: Path, definitions: codegen.Definitions, *, endbr: bool
) -> list[Path]:
    """Write the sources of a library whose calls are logged; return its further C files."""
    names = symbols(library.symbols)
    layout = _layout(library)
    if library.symbols == "nvml.txt":
        assembly = codegen.nvml_exports(names, definitions, endbr=endbr)
    elif library.symbols == "nccl.txt":
        assembly = codegen.nccl_exports(names, layout, definitions, endbr=endbr)
    else:
        assembly = codegen.cuda_exports(names, layout, definitions, endbr=endbr)
    (generated / "log_layout.h").write_text(codegen.layout_header(layout), encoding="utf-8")
    (generated / "exports.S").write_text(assembly, encoding="utf-8")
    if not library.versioned:
        return _export_table(library, generated, layout, definitions)
    table = codegen.driver_table(definitions.driver_calls, symbols("cuda.txt"))
    (generated / "drv_table.h").write_text(table, encoding="utf-8")
    return []


def _build_audit(out: Path) -> None:
    """Build the audit library, which gives the simulated libraries precedence over those of a wheel's
    RPATH.
    """
    names = ",".join(f'"{library.soname}"' for library in _LIBRARIES)
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-Wall", "-fno-builtin", "-fno-stack-protector")
    compile_c(_WHAT, out / AUDIT, *flags, "-nostdlib", f"-DSG_SONAMES={names}", str(_HERE / "audit.c"))


def _export_table(
    library: _Library, generated: Path, layout: codegen.LogLayout, definitions: codegen.Definitions
) -> list[Path]:
    """Write the symbol table of the driver or NVML; NCCL has none."""
    if library.symbols == "nccl.txt":
        return []
    text = '#include "sg_common.h"\n'
    text += codegen.export_table(symbols(library.symbols), layout, definitions)
    if library.symbols == "cuda.txt":
        versions = (_HERE / "symbols" / "cuda_versions.txt").read_text(encoding="utf-8").splitlines()
        text += codegen.version_table(versions, symbols("cuda.txt"))
        rules = (_HERE / "kernel_rules.txt").read_text(encoding="utf-8")
        text += codegen.text_constant("sg_default_rules", rules)
    (generated / "exports.c").write_text(text, encoding="utf-8")
    return [generated / "exports.c"]


def ensure_built(*, endbr: bool = False) -> Path:
    """Build the libraries unless they are there, and return their folder.

    Args:
        endbr: Build the variant whose functions start with ``endbr64``.

    Raises:
        BuildError: No compiler, or no safe place.
    """

    def make(work: Path, out: Path) -> None:
        if platform.machine() != "x86_64":
            raise BuildError("The simulated GPU is written for x86-64 only; run it on such a machine.")
        for library in _LIBRARIES:
            _build_library(library, work, out, endbr=endbr)
        _build_audit(out)

    return c_build.ensure_built(f"simgpu-{_key(endbr=endbr)}", _WHAT, make)


def nvml_path() -> Path:
    """Return the path of the simulated NVML library.

    A process that loads it by this path before it imports pynvml uses it, since the loader keys libraries by
    name.
    """
    return ensure_built() / "libnvidia-ml.so.1"


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of an environment in which programs find the simulated libraries first.

    By LD_LIBRARY_PATH, and by LD_AUDIT for wheels whose RPATH names NVIDIA's own.
    """
    result = dict(base)
    directory = ensure_built()
    for name, first in (("LD_LIBRARY_PATH", directory), ("LD_AUDIT", directory / AUDIT)):
        result[name] = os.pathsep.join([str(first), *filter(None, [base.get(name, "")])])
    return result
