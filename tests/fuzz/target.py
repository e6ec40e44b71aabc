"""What a fuzz target is, and which ones there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

NAMES = (
    "sessions",
    "traces",
    "elf_files",
    "line_tables",
    "mappings",
    "interpreter_memory",
    "preferences",
    "filters",
    "children",
    "otlp_answers",
    "web_input",
    "lake_files",
    "dask_messages",
)


@dataclass(frozen=True, slots=True)
class Target:
    """One reader of what others write.

    Attributes:
        seeds: Inputs as our own writers, compilers and kernels make them.
        mutate: Another input of the same structure; of one that has none any more, other bytes.
        run: Has the reader read an input. Whatever it raises is a finding, so it takes what may be raised.
            The folder is its own, empty at the start and not in anybody else's reach.
    """

    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, Random], bytes]
    run: Callable[[bytes, Path], None]


def target(name: str) -> Target:
    """The target of one of ``NAMES``."""
    found: Target = importlib.import_module(f"tests.fuzz.{name}").TARGET
    return found
