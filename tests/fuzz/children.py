"""What child processes say that read what others wrote: the demangler, the compiler, the caller of libraries.

The child may have been taken over by what it read, or be ended anywhere: its messages are any bytes.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from gputop.checks import selfhit
from probes.ebpf.build import bpf_cache, compiled
from probes.stacks import demangle
from tests.fuzz import mutation
from tests.fuzz.target import Target

_MANGLED = (
    b"_ZN4some4partEi",
    b"_ZNSt6vectorIiSaIiEE9push_backERKi",
    b"_ZN2at6native3addERKNS_6TensorES3_",
    b"_ZSt4moveIRiEONSt16remove_referenceIT_E4typeEOS2_",
    b"_Z1fSt4pairIiiES_IS0_S0_E",
    b"_ZNK3foo3barIXLi3EEEEvv",
)
_DEMANGLER, _NAME, _COMPILER, _CACHE, _CALLER = range(5)  # the first byte of an input
_WHOLE = {
    "maps": [{"name": "events", "type": 27, "key": 0, "value": 0, "entries": 4096, "flags": 0}],
    "programs": {"on_entry": base64.b64encode(bytes(64)).decode()},
    "files": [["/usr/lib/libbcc.so.0", 1, 2]],
}


def _seeds() -> list[bytes]:
    said = json.dumps(_WHOLE).encode()
    return [
        bytes([_DEMANGLER]) + b"some::part(int)\n",
        bytes([_DEMANGLER]) + b"x" * 2000 + b"\n",
        *(bytes([_NAME]) + name for name in _MANGLED),
        bytes([_COMPILER, 0]) + said,
        bytes([_COMPILER, 1]) + b"/tmp/x.c:3: error: unknown type\n",
        bytes([_COMPILER, 2]) + b"live tracing needs bcc\n",
        bytes([_CACHE]) + said,
        bytes([_CALLER, 0]) + b"12040\n",
        bytes([_CALLER, 1]) + b"libcuda.so.1: cannot open shared object file\n",
    ]


def _mutate(data: bytes, random: Random) -> bytes:
    if not data:
        return random.choice(_seeds())
    kind, rest = data[0] % (_CALLER + 1), data[1:]
    if random.random() < 0.6:
        if kind == _NAME:
            parts = (
                random.choice(_MANGLED)[2:],
                random.choice((b"S_", b"S0_", b"IiE", b"St", b"T_", b"K", b"E", b"N")),
            )
            at = random.randrange(len(rest) + 1)
            return (
                bytes([kind])
                + (rest[:at] + random.choice(parts) * random.choice((1, 1, 30)) + rest[at:])[:5000]
            )
        if kind in (_COMPILER, _CACHE):
            head = rest[:1] if kind == _COMPILER else b""
            with suppress(ValueError, RecursionError):
                changed = mutation.plain(json.loads(rest[len(head) :]), random)
                return bytes([kind]) + head + json.dumps(changed, default=repr).encode()
            return bytes([kind]) + head + b"[" * random.choice((1, 100_000))
    return bytes([kind]) + mutation.some_bytes(rest, random)


# -- reading it --------------------------------------------------------------------------------------


def _run(data: bytes, _folder: Path) -> None:
    if data:
        (_answer, _name, _compile, _kept, _called)[data[0] % (_CALLER + 1)](data[1:])


class _Silent:
    """A pipe that takes everything."""

    def write(self, _data: bytes) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


@contextmanager
def saying(data: bytes) -> Iterator[Any]:
    """A child that has said this and ended."""
    reads, writes = os.pipe()
    os.write(writes, data[:60_000])
    os.close(writes)
    with os.fdopen(reads, "rb", buffering=0) as said:
        yield SimpleNamespace(
            pid=os.getpid(),
            stdin=_Silent(),
            stdout=said,
            poll=lambda: None,
            kill=lambda: None,
            wait=lambda: 0,
        )


def _answer(data: bytes) -> None:
    helper = demangle.DemanglerChild()
    with saying(data) as process:
        helper.process = process
        said = helper.request("_ZN4some4partEi")
        if said is not None and ("\n" in said or len(said) > 4096):
            raise AssertionError("an answer that is no name")


def _name(data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    said = demangle.demangled(name)
    if len(said) > max(len(name), demangle.MOST_CHARACTERS):
        raise AssertionError("an answer that is longer than it may be")


def _compile(data: bytes) -> None:
    status, said = data[:1], data[1:]

    def run(*_words: object, **_how: object) -> object:
        return SimpleNamespace(returncode=status[0] % 4 if status else 0, stdout=said, stderr=said)

    nowhere = _instead(bpf_cache, "folder_of", lambda *_: None)
    with _instead(subprocess, "run", run), nowhere, suppress(compiled.CompileError):
        compiled.compiled("int x;")


def _kept(data: bytes) -> None:
    with _instead(bpf_cache, "read", lambda *_: data):
        compiled.read_kept(Path("/nowhere"), "key")


def _called(data: bytes) -> None:
    status, said = data[:1], data[1:]
    reads, writes = os.pipe()
    os.write(writes, said[:60_000])
    os.close(writes)
    with (
        os.fdopen(reads, "rb", buffering=0) as pipe,
        _instead(selfhit.os, "pidfd_open", lambda _: os.dup(reads)),
    ):
        child = SimpleNamespace(pid=0, stdout=pipe, returncode=status[0] if status else 0, wait=lambda: 0)
        with _instead(subprocess, "Popen", lambda *_, **__: child), _instead(os, "killpg", lambda *_: None):
            found = selfhit.call_from_child(0, "cuDriverGetVersion", 1)
    if len(found.error) > 1000:
        raise AssertionError("a sentence that nobody reads")
    selfhit.shown_version("driver", found.version)


@contextmanager
def _instead(owner: Any, name: str, stands_in: Callable[..., object]) -> Iterator[None]:
    really = getattr(owner, name)
    setattr(owner, name, stands_in)
    try:
        yield
    finally:
        setattr(owner, name, really)


TARGET = Target(_seeds, _mutate, _run)
