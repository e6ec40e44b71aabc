"""Finds recordings: files, folders, URLs; each content once, a recording in segments as one."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from gputop.api.reading import Progress
from gputop.fleet.explain_task import Task, content_hash, unreadable
from gputop.fleet.lake.lake_tables import Row
from gputop.fleet.lake.urls import is_url, local_name, opened, storage_errors, version_of
from replay.coding.file_format import SessionError
from replay.reader import SessionReader
from replay.segments import SUFFIX, segment_names

_SUFFIXES = (".msgpack", ".gputop")
_AT_ONCE = min(8, os.cpu_count() or 1)  # local files hashed at once
_SEGMENT = re.compile(r"\d{5,}\.gputop")


@dataclass(slots=True)
class Found:
    """Recordings to explain, with counts of known and unprocessed ones, and problems."""

    tasks: list[Task] = field(default_factory=list)
    known: int = 0
    problems: list[Row] = field(default_factory=list)
    left: int = 0


def sources(
    paths: Iterable[str], known: frozenset[str], versions: frozenset[str], progress: Progress
) -> Found:
    """Find recordings.

    Args:
        paths: Files, folders, URLs.
        known: Hashes in the lake.
        versions: Storage versions in the lake; see ``urls.version_of``.
        progress: Reports progress, and may stop the search.
    """
    found, seen = Found(), {*known, *versions}
    all_tasks = [task for path in paths for task in _tasks(path)]
    # hashing dominates runs without new files, and shared file systems have long latencies
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        try:
            for number, (task, session_id) in enumerate(
                zip(all_tasks, threads.map(_hash, all_tasks), strict=True)
            ):
                progress.parts(number, len(all_tasks))
                if progress.stopped:
                    found.left = len(all_tasks) - number
                    break
                if isinstance(session_id, OSError):
                    text = f"{task.path} cannot be read: {session_id.strerror}"
                    found.problems.append(unreadable(task.path, text, None))
                    continue
                one = session_id or str(task.version)
                if one in seen:
                    found.known += 1
                else:
                    seen.add(one)
                    found.tasks.append(Task(task.path, session_id, task.version, task.segments))
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
    return found


def _hash(task: Task) -> str | OSError | None:
    """Hash of a local recording, or the error; None for one in a storage."""
    try:
        return content_hash(task.path) if task.version is None else None
    except OSError as error:
        return error


def _tasks(path: str) -> Iterator[Task]:
    if is_url(path):
        yield from _stored(path)
        return
    path = local_name(path)
    if not os.path.isdir(path):
        yield Task(path)
        return
    for folder, below, names in os.walk(path):
        below.sort()
        whole = _is_one(folder)
        if whole:
            yield Task(folder)
        yield from (
            Task(os.path.join(folder, name))
            for name in sorted(names)
            if name.endswith(_SUFFIXES) and not (whole and name.endswith(SUFFIX))
        )


def _is_one(folder: str) -> bool:
    """True if a folder is a recording in segments: all of its .gputop belong to one."""
    try:
        names = segment_names(folder)
    except SessionError:
        return False
    if not names or not all(map(_SEGMENT.fullmatch, names)):
        return False
    recordings = set()
    for name in names:
        try:
            with closing(SessionReader(os.path.join(folder, name), follow=False)) as reader:
                about = reader.header.get("segment")
        except SessionError:
            continue  # torn: the others decide
        recordings.add(about.get("of") if isinstance(about, dict) else None)
    return len(recordings) == 1 and None not in recordings


def _stored(url: str) -> Iterator[Task]:
    """Files of a storage with their listed versions, so that known ones need not be fetched."""
    filesystem, root = opened(url)
    with storage_errors(url, "read"):
        listed: Mapping[str, Mapping[str, Any]] = filesystem.find(root, detail=True)
        if not listed:
            raise FileNotFoundError("no such file or object")
    folders: dict[str, list[str]] = {}
    for name in sorted(listed):
        if name.endswith(_SUFFIXES) or name == root:
            folders.setdefault(name.rpartition("/")[0], []).append(name)
    for folder, names in folders.items():
        segments = [name for name in names if name.endswith(SUFFIX)]
        if len(segments) > 1 and all(_SEGMENT.fullmatch(name.rpartition("/")[2]) for name in segments):
            versions = " ".join(version_of(name, listed[name]) for name in segments)
            version = hashlib.sha256(versions.encode()).hexdigest()
            urls = tuple(_url(filesystem, name) for name in segments)
            yield Task(_url(filesystem, folder), None, version, urls)
            names = [name for name in names if name not in segments]
        for name in names:
            yield Task(_url(filesystem, name), None, version_of(name, listed[name]))


def _url(filesystem: Any, name: str) -> str:
    return str(filesystem.unstrip_protocol(name))
