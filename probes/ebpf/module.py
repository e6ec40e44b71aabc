"""Loads compiled BPF programs: makes their maps, and inserts what is known only now."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress

from probes.ebpf import bpfcall
from probes.ebpf.build import compiler
from probes.ebpf.build.compiled import Compiled

_LATE = 0x67707574 << 32  # "gput": no number of a program's own


def outside(place: int) -> int:
    """The name in a text of another text's map: its place among those passed to ``Module``."""
    return compiler.OUTSIDE + place


def late(place: int) -> str:
    """In C, a number that is not known when a text is compiled: its place among those of ``Module``."""
    return f'({{ u64 late; asm("%0 = {_LATE + place:#x} ll" : "=r"(late)); (u32)late; }})'


def value(place: int) -> str:
    """In C, the address of a map's only value: its place among the names passed to ``Module``.

    It is a number in the program, where a look-up costs ten instructions.
    """
    return f"bpf_pseudo_fd(2, {place})"


class Module:
    """Maps and programs of one text; loaded ones stay until ``close``, or until this process ends.

    Raises:
        OSError: The kernel refuses a map.
    """

    def __init__(
        self,
        compiled: Compiled,
        numbers: Sequence[int] = (),
        others: Sequence[int] = (),
        values: Sequence[str] = (),
    ) -> None:
        self.compiled = compiled
        self._numbers = numbers
        self._values = values
        self._descriptors = {outside(place): fd for place, fd in enumerate(others)}
        self._programs: list[int] = []
        self.maps: dict[str, int] = {}
        try:
            for place, wanted in enumerate(compiled.maps):
                self.maps[wanted.name] = self._descriptors[place] = bpfcall.create_map(
                    wanted.name, wanted.type, wanted.key, wanted.value, wanted.entries, wanted.flags
                )
        except OSError:
            self.close()
            raise

    def load(self, name: str, kind: bpfcall.ProgramType, attach_type: int = 0, arguments: int = 0) -> int:
        """Loads a program and returns its descriptor; the arguments are those of ``bpfcall.load_program``.

        Raises:
            bpfcall.RefusedError: The kernel refuses it.
        """
        code = self._linked(self.compiled.programs[name])
        program = bpfcall.load_program(name, kind, code, attach_type, arguments)
        self._programs.append(program)
        return program

    def _linked(self, code: bytes) -> bytes:
        changed = bytearray(code)
        for place in range(0, len(code), 8):
            head, number = struct.unpack_from("<H2xI", code, place)
            if head & compiler.HEAD == compiler.MAP:
                struct.pack_into("<I", changed, place + 4, self._descriptors[number])
            elif head & compiler.HEAD == compiler.VALUE:
                struct.pack_into("<I", changed, place + 4, self.maps[self._values[number]])
            elif head & compiler.HEAD == compiler.NUMBER:
                high = struct.unpack_from("<I", code, place + 12)[0]
                if high == _LATE >> 32:
                    value = self._numbers[number]
                    struct.pack_into("<I", changed, place + 4, value & 0xFFFFFFFF)
                    struct.pack_into("<I", changed, place + 12, value >> 32)
        return bytes(changed)

    def close(self) -> None:
        """Closes all descriptors; attached programs stay attached."""
        programs, self._programs = self._programs, []
        maps, self.maps = self.maps, {}
        for descriptor in (*programs, *maps.values()):
            with suppress(OSError):
                os.close(descriptor)
