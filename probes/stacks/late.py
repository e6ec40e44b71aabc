"""Which mappings of a process that already runs may be its interpreter."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from probes.code import libraries, maps
from probes.code.interpreter import may_be
from probes.code.mmap_events import Mapped


def candidates(pid: int, *, chosen: bool = False) -> Iterator[Mapped]:
    """The executable mappings of a process that may be its interpreter; none when it has ended.

    They have an interpreter's name. Where none has, the program may have one inside, if it uses CUDA or was
    ``chosen``: those of all processes are not read.
    """
    mappings = [mapping for mapping in maps.executable(pid) if mapping.path.startswith("/")]
    names = [libraries.file_name(mapping.path) for mapping in mappings]
    if not any(map(may_be, names)) and (chosen or any(map(libraries.classify, names))):
        with contextlib.suppress(OSError):
            program = os.readlink(f"/proc/{pid}/exe")
            yield from (mapping for mapping in mappings if mapping.path == program)
    yield from (mapping for mapping, name in zip(mappings, names, strict=True) if may_be(name))
