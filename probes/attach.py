"""Attaches the loaded programs: scheduler tracepoints once, uprobes for each library file."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from probes import api, bpfcall, elf, libraries
from probes.loader import ProbeError, Programs

_ORDER = (api.NCCL, api.RUNTIME, api.DRIVER)


@dataclass(frozen=True, slots=True)
class Attached:
    """A library whose functions are probed."""

    target: libraries.Target
    build_id: str
    symbols: int


class Attachments:
    """Owns all links. Closing detaches everything; links close in parallel (0.12 s instead of 0.7 s)."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._links: list[int] = []
        self._seen: dict[tuple[int, int], Attached | str] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def attached(self) -> list[Attached]:
        """What is probed now."""
        return [entry for entry in self._seen.values() if isinstance(entry, Attached)]

    @property
    def refusals(self) -> list[str]:
        """Libraries that could not be probed, a sentence each."""
        return [entry for entry in self._seen.values() if isinstance(entry, str)]

    def attach_scheduler(self) -> None:
        """Attaches the raw tracepoints.

        Raises:
            ProbeError: The kernel refuses.
        """
        for name, program in self._programs.tracepoints.items():
            try:
                self._keep(bpfcall.attach_raw_tracepoint(program, name))
            except OSError as error:
                raise ProbeError(f"the kernel refuses tracepoint {name}: {error.strerror}") from error

    def attach(self, targets: Iterable[libraries.Target]) -> list[Attached]:
        """Attaches to library files that were not seen before; returns the new ones.

        A file that cannot be probed is remembered as a refusal and not tried again.
        """
        fresh = []
        # callers before callees: a driver call must not look outermost because its runtime call was not seen
        for target in sorted(targets, key=lambda target: _ORDER.index(target.layer)):
            if target.identity in self._seen:
                continue
            try:
                attached = self._attach(target)
            except (OSError, elf.ElfError) as error:
                self._seen[target.identity] = f"{target.shown} cannot be probed: {_explain(error)}"
                continue
            self._seen[target.identity] = attached
            fresh.append(attached)
        return fresh

    def _attach(self, target: libraries.Target) -> Attached:
        probes, image = libraries.probes_of(target)
        if probes:
            offsets = [probe.offset for probe in probes]
            cookies = [probe.cookie for probe in probes]
            path = str(target.path)
            # returns first: a call that is under way then ends without a start and is ignored
            for program, on_return in ((self._programs.on_return, True), (self._programs.entry, False)):
                self._keep(bpfcall.attach_uprobes(program, path, offsets, cookies, on_return=on_return))
        return Attached(target, image.build_id, len(probes))

    def _keep(self, link: int) -> None:
        with self._lock:
            if not self._closed:
                self._links.append(link)
                return
        os.close(link)

    def close(self) -> None:
        """Detaches everything; returns when the last probe is gone."""
        with self._lock:
            self._closed = True
            links, self._links = self._links, []
        if links:
            with ThreadPoolExecutor(max_workers=len(links)) as pool:
                list(pool.map(_close, links))


def _close(link: int) -> None:
    with contextlib.suppress(OSError):
        os.close(link)


def _explain(error: OSError | elf.ElfError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EINVAL:
        return "the kernel has no multi-uprobe links (needs Linux 6.6 or later)"
    if isinstance(error, OSError) and error.errno in (errno.EPERM, errno.EACCES):
        return "not permitted (CAP_BPF and CAP_PERFMON, or root)"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
