"""The BPF program that reads messages of the library inside a program, and its ring buffer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from probes.code import elf
from probes.ebpf import loader
from probes.ebpf.attacher import Attachments
from probes.ebpf.module import outside
from probes.files import untrusted_files
from probes.inside.messages import FUNCTION, MESSAGE_BYTES
from probes.stacks.stackring import StackRing

RING_BYTES: Final = 16 << 20  # 4000 messages, 290,000 rows


class Hearing:
    """The probe on the library's function, and the ring that it fills. Closing the attachments ends it.

    Raises:
        loader.ProbeError: The kernel refuses, or the file is no such library.
    """

    def __init__(self, programs: loader.Programs, attachments: Attachments, library: Path) -> None:
        defines = [
            f"#define MESSAGE_BYTES {MESSAGE_BYTES}",
            f"#define INSIDE_PAGES {RING_BYTES // os.sysconf('SC_PAGE_SIZE')}",
            f"#define PROCS_FD {outside(0)}",
        ]
        text = loader.text_of(("base.h", "inside.c"), defines)
        self._module, uprobes, _points, maps = loader.load_text(
            text, ("on_inside",), {}, ("inside",), multi=programs.multi, others=[programs.maps["procs"]]
        )
        try:
            self._file = untrusted_files.opened(library)
            offset = elf.read(self._file).functions.get(FUNCTION)
            if offset is None:
                raise elf.ElfError(f"it has no {FUNCTION}")
            attachments.attach_one(uprobes["on_inside"], self._file, offset, 0)
        except (OSError, elf.ElfError) as error:
            self._module.close()
            raise loader.ProbeError(f"{library} cannot be probed: {error}") from error
        self._ring = StackRing(maps["inside"], RING_BYTES)

    def read(self) -> Iterator[bytes]:
        """The messages that are there now, each behind ``messages.RECORD``."""
        return self._ring.read()

    def close(self) -> None:
        """Lets go of the ring and the programs, after the attachments were closed."""
        self._ring.close()
        self._file.close()
        self._module.close()
