"""Counts hits of each probed function, with a program of its own, for ``gputop check``.

The records of normal tracing name the API, not the copy of a library and the variant.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from probes.ebpf import attach_lock, attach_perf, bpfcall, loader
from probes.ebpf.attacher import close_all

SOURCE = Path(__file__).resolve().parent / "bpf" / "hits.c"
_FEWEST = 1024
_COUNT = np.dtype([("hits", "<u8")])


class HitCounter:
    """One counter a row. Closing detaches.

    Args:
        rows: How many functions will be counted.
        multi: Attach with multi-uprobe links, else with perf events.

    Raises:
        loader.ProbeError: bcc is missing, or the kernel refuses the program.
    """

    def __init__(self, rows: int, *, multi: bool) -> None:
        places = max(_FEWEST, 1 << max(rows - 1, 0).bit_length())  # few texts, so that they are kept
        text = f"#include <linux/types.h>\n#define HITS_ROWS {places}\n{SOURCE.read_text()}"
        self._module, programs, _, maps = loader.load_text(text, ("on_hit",), {}, ("hits",), multi=multi)
        self._program = programs["on_hit"]
        try:
            self._pmu = None if multi else attach_perf.read_pmu()
        except (OSError, ValueError) as error:
            raise loader.ProbeError(f"the kernel does not list its uprobes: {error}") from error
        self._rows = rows
        self._reader = bpfcall.BatchReader(maps["hits"], 4, _COUNT)
        self._links: list[int] = []
        self._detacher = None if multi else attach_perf.Detacher()

    def attach(self, path: Path, offsets: Sequence[int], first_row: int) -> None:
        """Counts hits at file offsets of ``path`` in the rows from ``first_row`` on. Raises OSError."""
        if not offsets:
            return
        where, rows = os.fspath(path), range(first_row, first_row + len(offsets))
        if self._pmu is None or self._detacher is None:
            link = bpfcall.attach_uprobes(self._program, where, offsets, rows, on_return=False)
            self._links.append(link)
            return
        attach_perf.allow_descriptors(len(offsets))
        with attach_lock.turn():
            links = attach_perf.attach(self._pmu, self._program, where, offsets, rows, on_return=False)
        self._detacher.keep(links)

    def read(self) -> list[int]:
        """Hits by row, since each was attached."""
        return [int(count) for count in self._reader.read()["hits"][: self._rows]]

    def close(self) -> None:
        """Detaches all: links in parallel, as each waits for the kernel; perf events after gputop's end."""
        if self._detacher is not None:
            self._detacher.close()
        links, self._links = self._links, []
        close_all(links)
        self._module.close()
