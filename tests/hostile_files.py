"""Readers of others' files in a child, and hostile files for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gputop.simgpu import ensure_built
from probes.files import file_reader
from tests.hanging_files import mounted

PATIENCE_S = file_reader.BUDGET_S + 20  # a busy machine may be late, but not for ever
RUNTIME = "libcudart.so.12"


@contextmanager
def hanging_runtime(folder: Path) -> Iterator[Path]:
    """A file system of which some files never answer; the others hold the simulated runtime."""
    folder.mkdir()
    with mounted(folder, (ensure_built() / RUNTIME).read_bytes()) as place:
        yield place


def in_time(work: Callable[[], object]) -> object:
    """What it returns; whoever waits for a file of somebody else's fails."""
    said: list[object] = []
    thread = threading.Thread(target=lambda: said.append(work()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert said, "it waits for somebody else's file"
    return said[0]


def pipe(path: Path) -> Path:
    """A pipe that nobody writes into."""
    os.mkfifo(path)
    return path


def device(_path: Path) -> Path:
    """What is read without an end."""
    return Path("/dev/zero")
