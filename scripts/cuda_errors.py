#!/usr/bin/env python3
"""Writes gputop/engine/cuda_errors.tsv from NVIDIA's own runtime and headers."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "gputop" / "engine" / "cuda_errors.tsv"
MOST = 1_000  # the codes of CUDA lie below
UNKNOWN = "unrecognized error code"
# how driver_types.h describes an error after which nothing goes any more
STICKY = re.compile(r"must\s+\*?\s*be\s+\*?\s*terminated")


def toolkit() -> Path:
    """The folder of CUDA 13's runtime in this environment (pyproject.toml, ``cuda-test``)."""
    found = [Path(entry) / "nvidia" / "cu13" for entry in sys.path]
    for folder in found:
        if (folder / "include" / "cuda.h").exists():
            return folder
    raise SystemExit("NVIDIA's runtime is not installed here: make setup installs it")


def runtime_names(library: Path) -> Iterator[tuple[int, str, str]]:
    """(code, name, text) by the runtime; it needs no driver."""
    runtime = ctypes.CDLL(str(library))
    runtime.cudaGetErrorName.restype = runtime.cudaGetErrorString.restype = ctypes.c_char_p
    for code in range(1, MOST):
        name = runtime.cudaGetErrorName(code).decode()
        if name != UNKNOWN:
            yield code, name, runtime.cudaGetErrorString(code).decode()


def driver_names(header: str) -> dict[int, str]:
    """Code -> its name in the driver's interface."""
    return {int(code): name for name, code in re.findall(r"\b(CUDA_ERROR_\w+)\s*=\s*(\d+)", header)}


def sticky_codes(header: str) -> set[int]:
    """Codes after which the process can do nothing with CUDA any more, by their descriptions."""
    described = re.findall(r"/\*\*(.*?)\*/\s*\w+\s*=\s*(\d+),", header, re.DOTALL)
    return {int(code) for text, code in described if STICKY.search(text)}


def text() -> str:
    """The table: code, name, the driver's name, 1 if it is sticky, text."""
    folder = toolkit()
    drivers = driver_names((folder / "include" / "cuda.h").read_text(errors="replace"))
    sticky = sticky_codes((folder / "include" / "driver_types.h").read_text(errors="replace"))
    rows = {code: (name, said) for code, name, said in runtime_names(folder / "lib" / "libcudart.so.13")}
    lines = []
    for code in sorted({*rows, *drivers}):
        name, said = rows.get(code, ("", ""))
        lines.append(f"{code}\t{name}\t{drivers.get(code, '')}\t{int(code in sticky)}\t{said}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
