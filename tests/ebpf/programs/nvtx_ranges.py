"""Ranges as NVTX's header makes them: loads what the environment names, and calls it by the header's tables.

What it does it logs by its own clock, as JSON in SELF_LOG.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from typing import Any

CORE, CORE2, CALLBACKS = 1, 5, 1
ASCII, REGISTERED, INT64 = 1, 3, 2
SLOTS = {CORE: 16, CORE2: 16}


class Attributes(ctypes.Structure):
    """nvtxEventAttributes_t."""

    _fields_ = (
        ("version", ctypes.c_uint16),
        ("size", ctypes.c_uint16),
        ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32),
        ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("payload", ctypes.c_int64),
        ("message_type", ctypes.c_int32),
        ("message", ctypes.c_void_p),
    )


Get = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint)
)


class Table(ctypes.Structure):
    """NvtxExportTableCallbacks."""

    _fields_ = (("size", ctypes.c_size_t), ("get", Get))


class Nvtx:
    """The functions that the injected library has put into the tables."""

    def __init__(self) -> None:
        self.slots = {module: (ctypes.c_void_p * count)() for module, count in SLOTS.items()}
        self.tables = {
            module: (ctypes.c_void_p * count)(
                *(ctypes.addressof(self.slots[module]) + 8 * place for place in range(count))
            )
            for module, count in SLOTS.items()
        }

        def get(module: int, table: Any, size: Any) -> int:
            if module not in SLOTS:
                return 0
            table[0], size[0] = ctypes.addressof(self.tables[module]), SLOTS[module] - 1
            return 1

        self.exported = Table(ctypes.sizeof(Table), Get(get))
        asked = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
        self.export = asked(lambda number: ctypes.addressof(self.exported) if number == CALLBACKS else None)
        library = ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"])
        assert library.InitializeInjectionNvtx2(self.export) == 1

    def call(self, module: int, place: int, result: Any, *arguments: Any) -> Any:
        """Calls a function by its place in a table."""
        kinds = [type(one) if not isinstance(one, bytes) else ctypes.c_char_p for one in arguments]
        return ctypes.CFUNCTYPE(result, *kinds)(self.slots[module][place])(*arguments)


def main() -> None:
    nvtx, log, void = Nvtx(), [], ctypes.c_void_p
    domain = void(nvtx.call(CORE2, 12, void, b"mine"))
    name = void(nvtx.call(CORE2, 10, void, domain, b"registered"))

    def loop() -> None:
        for number in range(60):
            attributes = Attributes(2, 48, payload_type=INT64, payload=-number, message_type=REGISTERED)
            attributes.message = name.value
            begin = time.monotonic_ns()
            nvtx.call(CORE2, 4, ctypes.c_int, domain, void(ctypes.addressof(attributes)))
            nvtx.call(CORE, 9, ctypes.c_int, b"plain")
            time.sleep(0.002)
            nvtx.call(CORE, 11, ctypes.c_int)
            nvtx.call(CORE2, 5, ctypes.c_int, domain)
            log.append(("registered", threading.get_native_id(), begin, time.monotonic_ns()))

    begin = time.monotonic_ns()
    span = nvtx.call(CORE, 5, ctypes.c_uint64, b"epoch")
    threads = [threading.Thread(target=loop) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    nvtx.call(CORE, 7, None, ctypes.c_uint64(span))
    log.append(("epoch", threading.get_native_id(), begin, time.monotonic_ns()))
    nvtx.call(CORE, 9, ctypes.c_int, b"never popped")
    nvtx.call(CORE, 2, None, "fertig: ä".encode())
    with open(os.environ["SELF_LOG"], "a") as file:
        print(json.dumps({"ranges": log}), file=file)


if __name__ == "__main__":
    main()
