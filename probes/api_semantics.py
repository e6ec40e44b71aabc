"""Meanings of traced functions: the part in the proof of an empty GPU, the group, the arguments.

The rows of api.py have them for each function. Source of the rules: the runtime API's "API synchronization
behavior" and "Stream synchronization behavior" pages; docs/explain.md has them in words.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Literal

H2D, D2H, D2D = 1, 2, 3  # cudaMemcpyKind: to the device, to the host, within it

# the meaning of a record's ``aux``
Argument = Literal[
    "",  # none is kept
    "event",
    "host",  # an address of host memory: the end of a copy that decides whether the call waits
    "device",  # a device's number
    "flags",
    "kernel",
    "callback",
    "graph",
    "communicator",
    "context",
    "address",  # on a device
    "handle",  # of physical memory
    "size",  # of free memory
    "image",  # of code
]


# a successful call's effect on memory
Memory = Literal[
    "",  # nothing
    "device",  # allocates some of the GPU's
    "managed",  # allocates some that moves between GPU and host
    "pool",  # allocates some from a pool, in the order of a stream
    "physical",  # allocates some of the GPU's without an address yet
    "pinned",  # allocates page-locked memory of the host
    "registered",  # page-locks memory that the program has
    "free",  # frees an address
    "unregister",
    "map",  # maps physical memory to an address
    "unmap",
    "release",  # releases a handle of physical memory, which is freed when nothing is mapped to it either
    "reset",  # frees all that the process has of a GPU
    "room",  # queries the free memory
]


class Role(IntEnum):
    """The part of a call in the proof."""

    OTHER = 0
    ENQUEUE = 1  # enqueues work in a stream
    COPY_SYNC = 2  # enqueues work and waits, depending on its direction and the host memory
    PROVE_DEVICE = 3  # its success proves all streams of the device empty
    PROVE_STREAM = 4
    PROVE_EVENT = 5
    RECORD = 6  # puts an event behind the work of a stream
    WAIT = 7  # makes a stream wait for an event
    CREATE_STREAM = 8
    HOST_RANGE = 9  # page-locks memory
    HOST_FREE = 10
    SET_DEVICE = 11
    CAPTURE_BEGIN = 12
    CAPTURE_END = 13
    CREATE_EVENT = 14
    BRACKET = 15  # begins or ends a group of collectives, which its end starts


class Group(IntEnum):
    """Groups of functions; the table has the names in lower case."""

    OTHER = 0
    LAUNCH = 1
    COPY = 2
    SET = 3
    SYNC = 4
    QUERY = 5
    EVENT = 6
    ALLOC = 7
    FREE = 8
    HOST = 9
    STREAM = 10
    GRAPH = 11
    MODULE = 12
    DEVICE = 13
    COLLECTIVE = 14


class Trait(IntFlag):
    """Properties of a function beside its role; the table has the names in lower case."""

    NONE = 0
    RUNS = 1  # certainly makes the GPU run something
    HOLDS = 2  # goes into a stream and is not the GPU's work: while it is due the GPU may be idle
    WAITS = 4  # for the device, although something else is requested
    MINIMAL = 8  # traced also where each probe is dear (probes/ebpf/degradation.py)


_OF_GROUP = {"launch": Role.ENQUEUE, "copy": Role.ENQUEUE, "set": Role.ENQUEUE, "collective": Role.ENQUEUE}


def usual_role(group: str) -> Role:
    """The role of a function of which nothing but its group is known."""
    return _OF_GROUP.get(group, Role.OTHER)
