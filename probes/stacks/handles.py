"""Names of the driver's handles of kernels, as cuBLAS, Triton and programs that load modules launch them.

A program gets a handle from the driver by the kernel's name, and passes it to launches. Handles obtained
before the probes were there have no name. The functions are the same for the runtime, whose
launches pass something else (probes/stacks/kernel_resolver.py). Source: cuda.h of CUDA 13.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from probes import api
from probes.code import elf, parsing
from probes.code.layout import HANDLE_DTYPE, HANDLE_NAMED, HANDLE_QUERIED, HANDLE_SAME
from probes.ebpf.attacher import Attachments
from probes.files import untrusted_files

FUNCTIONS = {
    "cuModuleGetFunction": HANDLE_NAMED,
    "cuLibraryGetKernel": HANDLE_NAMED,
    "cuKernelGetFunction": HANDLE_SAME,
    "cuKernelGetName": HANDLE_QUERIED,
    "cuFuncGetName": HANDLE_QUERIED,
}
MOST = 1 << 16  # handles of all processes; later ones have no name


class NamingProbes:
    """Probes these functions in the drivers that are traced, each file once."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._done: dict[tuple[int, int], untrusted_files.File] = {}

    def attach(self, uprobes: Mapping[str, int]) -> None:
        """Looks for drivers that were not there the last time."""
        before, self._done = self._done, {}
        for identity, file, shown in self._attachments.held(api.DRIVER):
            self._done[identity] = file
            if before.get(identity) is file:  # a later file may have the number of one that was removed
                continue
            with contextlib.suppress(OSError, elf.ElfError):  # their kernels have no name
                found = parsing.functions_in(file, [*FUNCTIONS], shown)
                for program, on_return in (("on_named", True), ("on_naming", False)):  # as of calls
                    # several names may be one function
                    for offset, how in {found[name]: FUNCTIONS[name] for name in found}.items():
                        self._attachments.attach_one(
                            uprobes[program], file, offset, how, on_return=on_return, library=identity
                        )


@dataclass(frozen=True, slots=True)
class KernelHandle:
    """A kernel that has a handle."""

    name: str  # the driver's name, mangled
    caller: int  # an address in the calling code
    time_ns: int  # when, by CLOCK_MONOTONIC
    renewed: bool = False  # the handle was that of another kernel before


class Handles:
    """The kernels of handles, by process."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], KernelHandle] = {}

    def hear(self, record: bytes) -> tuple[int, int] | None:
        """Consumes a HANDLE_RECORD; (process, handle) where it stands for a kernel that it did not before."""
        row = np.frombuffer(record, HANDLE_DTYPE, 1)[0]
        pid, handle, other = int(row["pid"]), int(row["handle"]), int(row["other"])
        before = self._known.get((pid, handle))
        if other:
            same = self._known.get((pid, other))
            name = same.name if same is not None else ""
        else:
            name = row["name"].tobytes().split(b"\0", 1)[0].decode(errors="replace")
        if not name or (before is not None and before.name == name):
            return None
        if before is None and len(self._known) >= MOST:
            return None
        self._known[pid, handle] = KernelHandle(
            name, int(row["caller"]), int(row["time"]), before is not None
        )
        return pid, handle

    def get(self, pid: int, handle: int) -> KernelHandle | None:
        """The kernel of a handle; None where no query was seen."""
        return self._known.get((pid, handle))

    @property
    def processes(self) -> set[int]:
        return {pid for pid, _ in self._known}

    def forget(self, pids: Collection[int]) -> None:
        """Drops the handles of processes that have ended."""
        self._known = {key: one for key, one in self._known.items() if key[0] not in pids}
