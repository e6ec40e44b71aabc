"""Recognises files that are no recordings by their content, with the command for each."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import zlib
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gputop.format import escape_text
from replay.folders import opened

_HEAD: Final = 64 << 10  # bytes that are read of a file, and of its unpacked content
_SQLITE: Final = b"SQLite format 3\x00"
_STEPS: Final = 100_000  # of SQLite's machine, for a list of tables
GZIP: Final = "a gzip file"  # without JSON
_LONGEST: Final = 40  # characters of a name by another program
# written only by torch.profiler, not by Chrome and other writers of its format
_KINETO: Final = re.compile(
    rb'"(?:deviceProperties|cpu_op|cuda_runtime|cuda_driver|gpu_memcpy|distributedInfo|baseTimeNanoseconds|'
    rb'trace_id|cupti_version|cuda_runtime_version|user_annotation|python_function|ac2g|with_flops)"|'
    rb"PyTorch Profiler"
)
_COMPRESSED: Final = {
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"\xfd7zXZ\x00": ("xz", "unxz"),
    b"BZh": ("bzip2", "bunzip2"),
}
_MAGIC: Final = {
    b"PAR1": "a Parquet file",
    b"\x7fELF": "a program or a library",
    b"PK\x03\x04": "a zip archive",
    b"\x80\x02": "a Python pickle",
    b"\x80\x03": "a Python pickle",
    b"\x80\x04": "a Python pickle",
    b"\x80\x05": "a Python pickle",
    b"\x89PNG": "a picture",
}
_BY_ENDING: Final = {
    ".nsys-rep": ("an Nsight Systems report", "first nsys export --type sqlite {path}, then gputop import"),
    ".qdrep": ("an Nsight Systems report", "first nsys export --type sqlite {path}, then gputop import"),
    ".ncu-rep": ("an Nsight Compute report, which holds no timeline", ""),
    ".pftrace": ("a Perfetto trace, which gputop writes and does not read", ""),
    ".perfetto-trace": ("a Perfetto trace, which gputop writes and does not read", ""),
}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A file that is no recording.

    Attributes:
        what: Its kind, with an article: "a torch.profiler trace".
        command: The command for it, "" for none.
    """

    what: str
    command: str = ""

    def sentence(self, path: str) -> str:
        return f"{path} is {self.what}, not a gputop recording" + (
            f": {self.command}" if self.command else ""
        )


def recognise(path: str) -> Foreign | None:
    """Return the kind of a file that is no recording; None: unknown."""
    try:
        if os.path.isdir(path):
            return _folder(path)
        with os.fdopen(opened(path), "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    quoted = shlex.quote(path)
    for ending, (what, command) in _BY_ENDING.items():
        if path.endswith(ending):
            return Foreign(what, command.format(path=quoted))
    if head.startswith(_SQLITE):
        return _database(path)
    for magic, (what, program) in _COMPRESSED.items():
        if head.startswith(magic):
            return Foreign(f"a {what} file", f"unpack it first: {program} {quoted}")
    if head.startswith(b"\x1f\x8b"):
        inner = _inflated(head)
        return _json(path, inner) or Foreign(GZIP, f"unpack it first: gunzip {quoted}")
    return _json(path, head) or _program(path, head) or _other(head)


def _folder(path: str) -> Foreign | None:
    quoted = shlex.quote(path)
    if os.path.exists(os.path.join(path, "pieces", "lake")):
        return Foreign("a lake of gputop fleet", f"gputop fleet overview {quoted}")
    names = os.listdir(path)
    if any(name.endswith(".gputop") for name in names):
        return None  # segments, whose reader reports the problem
    if any(name.endswith(".msgpack") for name in names):
        return Foreign(
            "a folder", f"name one file in it, or explain all: gputop fleet ingest {quoted} --into LAKE"
        )
    return Foreign("a folder without recordings")


def _database(path: str) -> Foreign:
    try:
        address = f"{Path(path).resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.set_progress_handler(lambda: 1, _STEPS)
            rows = database.execute(
                "select name from sqlite_master where type = 'table' order by name limit 256"
            )
            tables = [str(name) for (name,) in rows]
            columns = {str(row[1]) for row in database.execute("pragma table_info(events)")}
    except sqlite3.Error:
        return Foreign("a damaged SQLite database")
    if "StringIds" in tables:
        return Foreign("an Nsight Systems database", _import(path))
    if {"timestamp", "source", "op", "duration"} <= columns:
        return Foreign("an Ingero database", _import(path))
    return Foreign(f"an SQLite database with {named('table', tables)}")


def named(noun: str, names: Collection[str], most: int = 8) -> str:
    """Return the first names as text, and the number of others."""
    if not names:
        return f"no {noun}"
    shown = ", ".join(escape_text(name[:_LONGEST]) for name in list(names)[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {shown}{more}"


def _inflated(head: bytes) -> bytes:
    with suppress(zlib.error):
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, _HEAD)
    return b""


def _json(path: str, head: bytes) -> Foreign | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith((b"{", b"[")):
        return None
    if found := re.search(rb'"schema":\s*"gputop\.([a-z]+)/\d+"', text[:4096]):
        return Foreign(f"the JSON of gputop {found[1].decode()}", "name the recording that it was made of")
    if _KINETO.search(text):
        return Foreign("a torch.profiler trace", _import(path))
    if b'"traceEvents"' in text or re.match(rb'\[\s*\{[^{}]*"ph"\s*:', text):
        return Foreign("a Chrome trace", _import(path))
    if b"speedscope.app/file-format-schema" in text:
        return Foreign("a speedscope profile, which gputop writes and does not read")
    return Foreign("a JSON file")


def _import(path: str) -> str:
    """The command that imports it."""
    name = os.path.basename(path)
    for ending in (".gz", ".json", ".pt.trace", ".sqlite", ".db"):
        name = name.removesuffix(ending)
    return f"gputop import {shlex.quote(path)} -o {shlex.quote(name or 'trace')}.msgpack"


def _program(path: str, head: bytes) -> Foreign | None:
    quoted = shlex.quote(path)
    if path.endswith(".py") or re.match(rb"#!.*\bpython", head):
        return Foreign("a Python program", f"to start it: gputop -- python {quoted}")
    if head.startswith((b"#!", b"\x7fELF")) and os.access(path, os.X_OK):
        program = path if "/" in path else f"./{path}"
        return Foreign("a program", f"to start it: gputop -- {shlex.quote(program)}")
    return None


def _other(head: bytes) -> Foreign | None:
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            return Foreign(what)
    if re.match(rb"\s*<(?:!doctype|html)", head, re.IGNORECASE):
        return Foreign("an HTML page")
    is_text = head and not re.search(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\xff]", head)
    return Foreign("a text file") if is_text else None
