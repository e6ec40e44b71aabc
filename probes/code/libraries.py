"""Finds the CUDA and NCCL libraries that processes use or will use, each file once."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from probes import api
from probes.code import communicators, cookies, elf, sites
from probes.files import file_reader, maps
from probes.files.mmap_events import Mapped
from probes.files.untrusted_files import File
from probes.process import users

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
_GONE = " (deleted)"  # what the kernel puts behind the path of a removed file
_UNKNOWN_SIZE = 4096  # bytes read of a function whose size the file does not report

_STATIC_PREFIX = "cuda"
_REMOVED_IN_13 = {"cudaThreadSynchronize", "cudaGetDeviceProperties_v2"}
_RUNTIME_TEXT = b"cudaErrorInvalidValue\0"  # for cudaGetErrorName; stays when the symbols are removed


@dataclass(frozen=True, slots=True)
class Target:
    """A library file to attach to."""

    path: Path  # path by which gputop itself reaches the file (through ``/proc/PID/root`` for containers)
    shown: str  # path as its user knows it
    identity: tuple[int, int]  # (device, inode)
    layer: str  # runtime, driver or nccl
    major: int  # major version from its name, 0 if it names none
    static: bool = False  # an executable into which the library is linked; ``major`` is then 0


@dataclass(frozen=True, slots=True)
class Probe:
    """One symbol to probe."""

    symbol: str  # the function's name
    # where in the file the probes of its entry and its return go; ``probes.code.sites`` chooses it
    offset: int
    cookie: int  # what each hit carries
    cheap: bool  # whether the kernel emulates the instruction there; else each hit is single-stepped


@functools.lru_cache(4096)  # called for whatever any process of the machine maps
def classify(name: str) -> tuple[str, int] | None:
    """(layer, major) of a library's file name, or None when it is not a traced one."""
    match = _NAME.fullmatch(name)
    return (_LAYERS[match[1]], int(match[2] or 0)) if match else None


def target(path: Path, shown: str | None = None) -> Target | None:
    """The library at ``path``, if it is a traced one and exists."""
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


def probes_of(library: Target, file: File) -> tuple[list[Probe], elf.Library]:
    """What to probe in a library. Symbols at one address (aliases) are probed once.

    Raises:
        elf.ElfError, OSError: The file cannot be read or is no library.
    """
    if library.static:
        image = elf.read_defined(file, _STATIC_PREFIX)
        major = 12 if _REMOVED_IN_13 & image.functions.keys() else 0  # 0: what the newest has
    else:
        image, major = elf.read(file), library.major
    if not major and (match := _NAME.fullmatch(image.soname)):
        major = int(match[2] or 0)
    probes: dict[int, Probe] = {}
    chosen: dict[int, sites.Site] = {}  # aliases share theirs
    for symbol, start in sorted(image.functions.items()):
        row = api.find(symbol, library.layer, major)
        cookie = (
            communicators.cookie_of(symbol, library.layer) if row is None else cookies.encode(row, symbol)
        )
        if cookie is None:
            continue
        site = chosen.get(start) or chosen.setdefault(start, _site(file, start, image))
        offset = start + site.offset
        probes.setdefault(offset, Probe(symbol, offset, cookie, site.cheap))
    return list(probes.values()), image


def _site(file: File, start: int, image: elf.Library) -> sites.Site:
    if image.machine != "x86_64":
        return sites.Site(0, cheap=False)
    size = image.sizes_at.get(start) or _UNKNOWN_SIZE
    return sites.choose(file.read(start, min(size, sites.CODE_LIMIT)))


def mapped(pids: Iterable[int]) -> Iterator[Target]:
    """Libraries that these processes have mapped; a process that ended or is not accessible has none."""
    yield from filter(None, map(reach, mappings(pids)))


def mappings(pids: Iterable[int], also: Collection[str] = ()) -> Iterator[Mapped]:
    """The mappings of libraries, each once a process, and of files at the paths ``also``."""
    for pid in pids:
        seen: set[tuple[int, int]] = set()
        for mapping in maps.read(
            pid,
            lambda _rights, path: classify(file_name(path)) is not None or path.removesuffix(_GONE) in also,
        ):
            if mapping.file not in seen:
                seen.add(mapping.file)
                yield mapping


def maps_cuda(pid: int) -> bool:
    """True if a process has a CUDA or NCCL library mapped, as far as it may be read."""
    return next(mappings((pid,)), None) is not None


def layer(mapping: Mapped) -> str:
    """The layer of a mapped library, "" when it is not a traced one."""
    kind = classify(file_name(mapping.path))
    return kind[0] if kind else ""


def calling_order(layer_name: str) -> int:
    """Sorts callers before callees: a driver call must not look outermost for want of its runtime call."""
    return (api.NCCL, api.RUNTIME, api.DRIVER, "").index(layer_name)


def file_name(path: str) -> str:
    """The last part of a path as the kernel reports it, also of a file that is gone."""
    return path.removesuffix(_GONE).rpartition("/")[2]


def reach(mapping: Mapped) -> Target | None:
    """The very file that a process has mapped; None when it is not a traced one or the process has ended.

    The path alone could lead elsewhere: to gputop's own file where the process has another root, to a newer
    one that took the place of the mapped one. So device and inode decide. Where no path leads to the file, or
    the file system shows other devices than the kernel's list of mappings (overlayfs, btrfs), the entry in
    ``map_files`` does, which is the mapping itself.
    """
    kind = classify(file_name(mapping.path))
    if kind is None:
        return None
    found = file_of(mapping)
    return found and Target(found[0], mapping.path, found[1], *kind)


def file_of(mapping: Mapped) -> tuple[Path, tuple[int, int]] | None:
    """A path to any file that a process has mapped, with its device and inode; None as for ``reach``.

    None, too, where its file system does not answer, which the reader reports.
    """
    reader = file_reader.current()
    if reader is None:
        return reached(mapping)
    if mapping.file in reader.places:
        return reader.places[mapping.file]
    what = [mapping.pid, list(mapping.span), list(mapping.file), mapping.path, mapping.offset]
    try:
        # a directory on the way may hang: that is blamed on the process's user, not on the file's owner
        user = users.of(mapping.pid)
        found, _ = reader.request("file_of", what, mapping.file, mapping.path, owner=-2 - user)
        if found is None:
            return None
        place = Path(found[0]), (int(found[1][0]), int(found[1][1]))
        reader.owners[place[1]] = int(found[2])
    except (OSError, file_reader.UnreadableError, TypeError, ValueError, IndexError):
        return None
    if not found[0].startswith("/proc/"):  # that ends with the process
        reader.places[mapping.file] = place
    return place


def forget(identity: tuple[int, int]) -> None:
    """Drops the known place of a file that has moved."""
    reader = file_reader.current()
    if reader is not None:
        for key in [key for key, place in reader.places.items() if place[1] == identity]:
            del reader.places[key]


def reached(mapping: Mapped) -> tuple[Path, tuple[int, int]] | None:
    """``file_of`` in this process."""
    itself = Path("/proc", str(mapping.pid), "map_files", "{:x}-{:x}".format(*mapping.span))
    shown = mapping.path.removesuffix(_GONE)
    behind = None
    # the first is there when the process has ended, the second where it has a root of its own
    for path in (Path(shown), Path(f"/proc/{mapping.pid}/root{shown}"), itself):
        try:
            status = path.stat()
        except OSError:
            continue
        identity = (status.st_dev, status.st_ino)
        if identity == mapping.file or path is itself:
            return path, identity
        if status.st_ino == mapping.file[1]:
            behind = path, identity  # without the right to map_files: the inode alone must do
    return behind


def executable(pid: int) -> Target | None:
    """The program that a process runs, as if the CUDA runtime were linked into it."""
    reader = file_reader.current()
    if reader is None:
        return executable_of(pid)
    try:
        shown = os.readlink(f"/proc/{pid}/exe")
        found, _ = reader.request("executable", [pid], (-pid, 0), shown)
        if found is None:
            return None
        path, shown, (device, inode) = found
        return Target(Path(path), str(shown), (int(device), int(inode)), api.RUNTIME, 0, static=True)
    except (OSError, file_reader.UnreadableError, TypeError, ValueError):
        return None


def executable_of(pid: int) -> Target | None:
    """``executable`` in this process."""
    link = Path(f"/proc/{pid}/exe")
    try:
        shown, status = os.readlink(link), link.stat()
    except OSError:
        return None
    return program(Path(shown), (status.st_dev, status.st_ino)) or Target(
        link, shown, (status.st_dev, status.st_ino), api.RUNTIME, 0, static=True
    )


def program(path: Path, identity: tuple[int, int] | None = None) -> Target | None:
    """The program at a path, as ``executable``; None where there is none, or another than ``identity``."""
    try:
        real = path.resolve(strict=True)
        status = real.stat()
    except (OSError, RuntimeError):
        return None
    found = (status.st_dev, status.st_ino)
    if identity not in (None, found):
        return None
    return Target(real, str(real), found, api.RUNTIME, 0, static=True)


class Runtime(Enum):
    """How the CUDA runtime is in a program's own file."""

    ABSENT = "absent"
    VISIBLE = "visible"  # by its symbols
    STRIPPED = "stripped"  # it is there, its symbols are not


def runtime_in(file: File) -> Runtime:
    """How the CUDA runtime is linked into a program. Raises OSError, elf.ElfError."""
    image = elf.read_defined(file, _STATIC_PREFIX)
    if any(api.find(symbol, api.RUNTIME, 0) for symbol in image.functions):
        return Runtime.VISIBLE
    return Runtime.STRIPPED if elf.contains(file, _RUNTIME_TEXT) else Runtime.ABSENT


def all_pids() -> list[int]:
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
