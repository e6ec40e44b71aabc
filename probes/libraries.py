"""Finds the CUDA and NCCL libraries that processes use or will use, each file once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from probes import api, elf

_NAME = re.compile(r"lib(cudart|cuda|nccl)(?:-[0-9a-f]+)?\.so(?:\.(\d+))?[\d.]*$")
_LAYERS = {"cudart": api.RUNTIME, "cuda": api.DRIVER, "nccl": api.NCCL}
_SYSTEM_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
)
_WHEEL_GLOBS = ("nvidia/*/lib/lib*.so*", "torch/lib/lib*.so*")


@dataclass(frozen=True, slots=True)
class Target:
    """A library file to attach to.

    Attributes:
        path: Path by which gputop itself reaches the file (through ``/proc/PID/root`` for containers).
        shown: Path as its user knows it.
        identity: (device, inode).
        layer: runtime, driver or nccl.
        major: Major version from its name, 0 if it names none.
    """

    path: Path
    shown: str
    identity: tuple[int, int]
    layer: str
    major: int


@dataclass(frozen=True, slots=True)
class Probe:
    """One symbol to probe: file offset and cookie."""

    symbol: str
    offset: int
    cookie: int


def classify(name: str) -> tuple[str, int] | None:
    """(layer, major) of a library's file name, or None when it is not one of ours."""
    match = _NAME.fullmatch(name)
    return (_LAYERS[match[1]], int(match[2] or 0)) if match else None


def target(path: Path, shown: str | None = None) -> Target | None:
    """The library at ``path``, if it is one of ours and exists."""
    kind = classify(path.name)
    if kind is None:
        return None
    try:
        real = path.resolve(strict=True) if shown is None else path
        status = real.stat()
    except (OSError, RuntimeError):
        return None
    # libcudart.so -> libcudart.so.12.9.79: the version is in the name of the file itself
    layer, major = classify(real.name) or kind
    return Target(real, shown or str(real), (status.st_dev, status.st_ino), layer, major or kind[1])


def probes_of(library: Target) -> tuple[list[Probe], elf.Library]:
    """What to probe in a library. Symbols at one address (aliases) are probed once.

    Raises:
        elf.ElfError, OSError: The file cannot be read or is no library.
    """
    image = elf.read(library.path)
    major = library.major
    if not major and (match := _NAME.fullmatch(image.soname)):
        major = int(match[2] or 0)
    probes: dict[int, Probe] = {}
    for symbol, offset in sorted(image.functions.items()):
        row = api.find(symbol, library.layer, major)
        if row is not None:
            probes.setdefault(offset, Probe(symbol, offset, api.cookie(row, symbol)))
    return list(probes.values()), image


def mapped(pids: Iterable[int]) -> Iterator[Target]:
    """Libraries that these processes have mapped; a process that ended or is closed to us has none."""
    for pid in pids:
        seen: set[str] = set()
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
        except OSError:
            continue
        for line in lines:
            columns = line.split(None, 5)
            path = columns[5] if len(columns) == 6 else ""
            if path in seen or classify(path.rpartition("/")[2]) is None:
                continue
            seen.add(path)
            found = target(Path(f"/proc/{pid}/root{path}"), path)
            if found is not None:
                yield found


def all_pids() -> list[int]:
    """Every process that /proc shows."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def installed(environment: Mapping[str, str], interpreters: Iterable[Path] = ()) -> Iterator[Target]:
    """Libraries that a program started with ``environment`` would find: search paths, system, wheels."""
    folders = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for folder in (*folders, *_SYSTEM_FOLDERS):
        yield from _in_folder(Path(folder))
    for prefix in interpreters:
        for packages in (
            *prefix.glob("lib/python3*/site-packages"),
            *prefix.glob("lib/python3*/dist-packages"),
        ):
            for pattern in _WHEEL_GLOBS:
                for path in sorted(packages.glob(pattern)):
                    found = target(path)
                    if found is not None:
                        yield found


def _in_folder(folder: Path) -> Iterator[Target]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if classify(name):
            found = target(folder / name)
            if found is not None:
                yield found
