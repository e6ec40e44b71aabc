"""A text of BPF programs, compiled: from the cache, or else by the compiler and into the cache."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from probes.ebpf.build import bpf_cache, compiler

SHIM = Path(__file__).resolve().parent.parent / "shim"

_Parts = tuple[tuple["Map", ...], Mapping[str, bytes]]

_FORM = 1  # of the compiler's output
_NUMBERS = ("type", "key", "value", "entries", "flags")
_SCRIPT = Path(__file__).resolve().parent / "compiler.py"
_NOT_CACHED = "this user has no home"


class CompileError(Exception):
    """bcc is missing, or did not compile; ``log`` is its output."""

    def __init__(self, message: str, log: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.log = tuple(log)


@dataclass(frozen=True, slots=True)
class Map:
    """The parameters of a map."""

    name: str
    type: int
    key: int
    value: int
    entries: int
    flags: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """Programs that are not loaded yet."""

    maps: tuple[Map, ...]  # the maps that they make
    # instructions by name; a map is named by its place in ``maps``, and from ``compiler.OUTSIDE`` on it is
    # another text's
    programs: Mapping[str, bytes]
    cached: bool = field(compare=False)  # compiled at an earlier start
    folder: str = field(compare=False)  # where they are kept, or ``""``
    problem: str = field(compare=False)  # why they are not kept, in one sentence, or ``""``


def compiled(text: str, folder: Path | None = None) -> Compiled:
    """The programs of a text.

    Raises:
        CompileError: As it says.
    """
    folder = folder or bpf_cache.folder_of(os.geteuid(), os.environ)
    key, problem = key_of(text), _NOT_CACHED if folder is None else ""
    if folder is not None:
        try:
            found = read_kept(folder, key)
        except bpf_cache.NoCacheError as error:
            found, problem = None, str(error)
        if found is not None:
            return Compiled(*found, cached=True, folder=str(folder), problem="")
    data = compile_in_child(text)
    try:
        made, _ = _understood(data)
    except ValueError as error:
        raise CompileError(f"bcc's answer cannot be read: {error}") from error
    if folder is not None and not problem:
        try:
            bpf_cache.write(folder, key, data)
        except bpf_cache.NoCacheError as error:
            problem = str(error)
    return Compiled(*made, cached=False, folder=str(folder or ""), problem=problem)


def key_of(text: str) -> str:
    """The key of programs in the cache: all that goes into them but the compiler, see ``read_kept``."""
    shim = [part.read_bytes() for part in sorted(SHIM.rglob("*.h"))]
    facts = (_FORM, *compiler.FLAGS, platform.release(), platform.machine())
    parts = [*(str(fact).encode() for fact in facts), *shim, text.encode()]
    return hashlib.sha256(b"".join(b"%d %s" % (len(part), part) for part in parts)).hexdigest()


def read_kept(folder: Path, key: str) -> _Parts | None:
    """The kept programs, unless the compiler is gone or has changed: its files are named with them.

    Raises:
        bpf_cache.NoCacheError: As ``bpf_cache.read``.
    """
    data = bpf_cache.read(folder, key)
    if data is None:
        return None
    try:
        made, files = _understood(data)
        same = all(compiler.identity(path) == [path, *facts] for path, facts in files.items())
    except (OSError, ValueError):
        return None
    return made if same else None


def _understood(data: bytes) -> tuple[_Parts, dict[str, list[int]]]:
    """Maps and programs, and the compiler's files, from the output of the compiler's process.

    Raises:
        ValueError: That process was cut short, or is another version's.
    """
    try:
        document = json.loads(data)
        maps = tuple(Map(str(one["name"]), *(int(one[key]) for key in _NUMBERS)) for one in document["maps"])
        programs = {str(name): base64.b64decode(code) for name, code in document["programs"].items()}
        files = {str(path): [int(size), int(changed)] for path, size, changed in document["files"]}
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return (maps, programs), files


def compile_in_child(text: str) -> bytes:
    """The output of a new process of the compiler.

    Raises:
        CompileError: As it says.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_SCRIPT), str(SHIM)],
            executable="/proc/self/exe",  # without root's rights the path to this Python may be closed
            input=text.encode(),
            capture_output=True,
            cwd="/",
            start_new_session=True,  # the terminal's signals mean gputop, not it
            check=False,
        )
    except OSError as error:
        raise CompileError(f"the compiler of the probes cannot be started: {error.strerror}") from error
    if not done.returncode:
        return done.stdout
    log = done.stderr.decode(errors="replace").splitlines()
    if done.returncode == compiler.NO_BCC and log:
        raise CompileError(log[-1])
    errors = [line for line in log if "error" in line] or log or [f"exit status {done.returncode}"]
    raise CompileError(f"bcc did not compile the probes: {errors[0]}", log)
