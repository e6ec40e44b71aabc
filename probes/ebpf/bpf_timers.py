"""Timers that run a BPF program: a perf event of each CPU's clock."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

from probes.process.system_calls import perf_event_open

_SOFTWARE, _CPU_CLOCK, _ATTRIBUTE_BYTES = 1, 0, 64
_DISABLED, _EXCLUDE_IDLE, _FREQUENCY = 1, 1 << 7, 1 << 10  # bits of perf_event_attr's flags
_ENABLE, _SET_BPF = 0x2400, 0x40042408  # PERF_EVENT_IOC_


def start(program: int, hertz: int, cpus: int) -> list[int]:
    """Runs a program so many times a second on each CPU that is not idle.

    Returns:
        File descriptors; closing them ends it.

    Raises:
        OSError: The kernel refuses.
    """
    events: list[int] = []
    try:
        for cpu in range(cpus):
            event = _open(hertz, cpu)
            if event is None:
                continue
            events.append(event)
            fcntl.ioctl(event, _SET_BPF, program)
            fcntl.ioctl(event, _ENABLE, 0)
    except OSError:
        for event in events:
            os.close(event)
        raise
    return events


def _open(hertz: int, cpu: int) -> int | None:
    """The event of all processes on a CPU, None while it is offline. Raises OSError."""
    flags = _DISABLED | _EXCLUDE_IDLE | _FREQUENCY
    attribute = struct.pack("<IIQQQQQII", _SOFTWARE, _ATTRIBUTE_BYTES, _CPU_CLOCK, hertz, 0, 0, flags, 0, 0)
    buffer = ctypes.create_string_buffer(attribute, _ATTRIBUTE_BYTES)
    try:
        return perf_event_open(buffer, cpu)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
    return None
