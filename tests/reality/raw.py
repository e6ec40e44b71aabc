"""The rows of a trace as they stand in its file, read without gputop: the truth of the bench."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "fill", "memset": "fill"}
_CALLS = {"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime"}
_RANGES = {"cpu_op", "operator", "user_annotation", "python_function"}
_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "fill",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


@dataclass(frozen=True, slots=True)
class Work:
    """What a GPU ran: ns; ``link`` joins it to the call that gave it, None where there is none."""

    gpu: int
    begin: int
    end: int
    what: str
    name: str
    stream: int
    link: object


@dataclass(frozen=True, slots=True)
class Call:
    """A call of CUDA or HIP."""

    begin: int
    end: int
    thread: tuple[int, object]
    name: str
    link: object


@dataclass(frozen=True, slots=True)
class Named:
    """An operator, an annotation or a function of Python."""

    begin: int
    end: int
    thread: tuple[int, object]
    name: str
    python: bool = False


@dataclass(slots=True)
class Raw:
    """All of it."""

    work: list[Work] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ranges: list[Named] = field(default_factory=list)
    overhead: list[tuple[int, int]] = field(default_factory=list)
    ranks: int = 1


def read(path: Path) -> Raw:
    """The rows of one file; an empty one where it is no such trace."""
    with path.open("rb") as file:
        head = file.read(16)
    return _of_nsys(path) if head.startswith(b"SQLite format 3") else _of_kineto(path)


def _ns(value: Any) -> int:
    return round(float(value) * 1000)


def _of_kineto(path: Path) -> Raw:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    document = json.loads(_CONTROL.sub(b" ", data).decode("utf-8", "replace"), strict=False)
    raw = Raw()
    job = document.get("distributedInfo") if isinstance(document, dict) else None
    if isinstance(job, dict):
        raw.ranks = int(job.get("world_size") or 1)
    for event in document.get("traceEvents", []) if isinstance(document, dict) else document:
        if isinstance(event, dict) and event.get("ph") == "X" and event.get("dur") is not None:
            _take(raw, event)
    return raw


def _take(raw: Raw, event: dict[str, Any]) -> None:
    kind, args = str(event.get("cat", "")).lower(), event.get("args") or {}
    begin = _ns(event["ts"])
    end = begin + _ns(event["dur"])
    name, thread = str(event.get("name", "")), (event.get("pid", 0), event.get("tid"))
    link = args.get("correlation")
    if kind in _GPU:
        gpu = args.get("device", event.get("pid"))
        if isinstance(gpu, int) and end > begin:
            stream = args.get("stream", -1)
            raw.work.append(Work(gpu, begin, end, _GPU[kind], name, int(stream), link))
    elif kind in _CALLS:
        raw.calls.append(Call(begin, end, thread, name, link))
    elif kind in _RANGES:
        raw.ranges.append(Named(begin, end, thread, name, kind == "python_function"))
    elif kind == "overhead":
        raw.overhead.append((begin, end))


def _of_nsys(path: Path) -> Raw:
    raw = Raw()
    with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True) as database:
        database.text_factory = lambda text: text.decode("utf-8", "replace")
        database.row_factory = sqlite3.Row
        tables = {row[0] for row in database.execute("select name from sqlite_master where type='table'")}
        texts = dict(database.execute("select id, value from StringIds")) if "StringIds" in tables else {}
        for table, what in _TABLES.items():
            for row in _rows(database, tables, table):
                name = texts.get(row.get("demangledName"), texts.get(row.get("shortName"), ""))
                if what == "copy":
                    name = f"Memcpy {_COPIES.get(row.get('copyKind') or 0, '?')}"
                pid = (row.get("globalPid") or 0) >> 24 & 0xFFFFFF
                link = (pid, row.get("correlationId"))
                if row["end"] > row["start"]:
                    gpu, stream = row.get("deviceId") or 0, row.get("streamId") or -1
                    raw.work.append(Work(gpu, row["start"], row["end"], what, name, stream, link))
        for row in _rows(database, tables, "CUPTI_ACTIVITY_KIND_RUNTIME"):
            pid = row["globalTid"] >> 24 & 0xFFFFFF
            name = re.sub(r"_v\d+$", "", texts.get(row.get("nameId"), ""))
            link = (pid, row.get("correlationId"))
            raw.calls.append(
                Call(row["start"], row["end"] or row["start"], (pid, row["globalTid"]), name, link)
            )
        for row in _rows(database, tables, "NVTX_EVENTS"):
            if row.get("end") is None or row.get("globalTid") is None:
                continue
            name = row.get("text") or texts.get(row.get("textId"), "")
            thread = (row["globalTid"] >> 24 & 0xFFFFFF, row["globalTid"])
            raw.ranges.append(Named(row["start"], row["end"], thread, str(name)))
    return raw


def _rows(database: sqlite3.Connection, tables: set[str], table: str) -> Iterator[dict[str, Any]]:
    if table in tables:
        for row in database.execute(f"select * from {table}"):
            yield dict(row)
