"""What a traced function means: its part in the proof of an empty GPU, its group, what it is given.

The rows of api.py say it of each function. Source of the rules: the runtime API's "API synchronization
behavior" and "Stream synchronization behavior" pages; docs/explain.md tells them in words.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Literal

H2D, D2H, D2D = 1, 2, 3  # cudaMemcpyKind: to the device, to the host, within it

# what the argument is that a record keeps as ``aux``
Argument = Literal[
    "",  # none is kept
    "event",
    "host",  # an address of host memory: a copy's end of which it depends whether the call waits
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


# what a call does with memory, if it succeeds
Memory = Literal[
    "",  # nothing
    "device",  # takes some of the GPU's
    "managed",  # takes some that moves between GPU and host
    "pool",  # takes some from a pool, in the order of a stream
    "physical",  # takes some of the GPU's that has no address yet
    "pinned",  # takes page-locked memory of the host
    "registered",  # page-locks memory that the program has
    "free",  # gives back what lies at an address
    "unregister",
    "map",  # gives physical memory an address
    "unmap",
    "release",  # gives a handle of physical memory back, which goes when nothing is mapped to it either
    "reset",  # gives back all that the process has of a GPU
    "room",  # asks how much is free
]


class Role(IntEnum):
    """The part of a call in the proof."""

    OTHER = 0
    ENQUEUE = 1  # gives a stream work
    COPY_SYNC = 2  # gives the stream work and waits, depending on its direction and the host memory
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
    """What a function does, roughly; the table has the names in lower case."""

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
    """What is to be known of a function beside its role; the table has the names in lower case."""

    NONE = 0
    RUNS = 1  # certainly gives the GPU something to run
    HOLDS = 2  # goes into a stream and is not the GPU's work: while it is due the GPU may be idle
    WAITS = 4  # for the device, although something else is requested
    MINIMAL = 8  # traced also where each probe is dear (probes/ebpf/degradation.py)


_OF_GROUP = {"launch": Role.ENQUEUE, "copy": Role.ENQUEUE, "set": Role.ENQUEUE, "collective": Role.ENQUEUE}


def usual_role(group: str) -> Role:
    """The role of a function of which nothing but its group is known."""
    return _OF_GROUP.get(group, Role.OTHER)
