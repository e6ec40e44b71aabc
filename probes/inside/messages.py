"""Messages of the library inside a program: of at most a page, a header and rows or a text.

The one place where the layout lives: the library's header and the decoder's types come from it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

MESSAGE_BYTES: Final = 4096
FUNCTION: Final = "gputop_inside_hand"  # empty; a probe on it reads its argument, the message
VERSION: Final = 1


class Message(IntEnum):
    """The kinds of messages."""

    ROWS = 1
    TEXT = 2  # the text that a number stands for
    CLOCK = 3  # one moment on both clocks
    STATE = 4  # a State, and its sentence
    DEVICE = 5  # the UUID of a device, in digits, by CUDA's number of it


class What(IntEnum):
    """The kind of a row; its times are on CUPTI's clock up to OVERHEAD, then on CLOCK_MONOTONIC."""

    CALL = 1  # a call that may have enqueued work, by its correlation
    KERNEL = 2
    COPY = 3
    FILL = 4
    GRAPH = 5
    OVERHEAD = 6
    RANGE = 7  # pushed and popped on a thread
    SPAN = 8  # started and ended, by any threads
    INSTANT = 9  # a mark


class InsideState(IntEnum):
    """How it stands with a process."""

    ON = 1  # CUPTI reports from now on
    REFUSED = 2  # it does not, and why
    ENDED = 3  # all was handed over
    DISPLACED = 4  # another client has taken CUPTI over: no more reports
    RANGES = 5  # NVTX reports ranges from now on


HEADER: Final = np.dtype(
    [
        ("version", "<u2"),
        ("message", "<u2"),
        ("count", "<u4"),  # of rows; of bytes of a text
        ("pid", "<u4"),  # as the process itself has it
        ("number", "<u4"),  # of the text; State
        ("before", "<u8"),  # rows that were handed over before
        ("dropped", "<u8"),  # records that CUPTI had no room for
        ("parent", "<u4"),  # its parent, whose texts are its own, too; 0: no fork
        ("unused", "<u4"),
        ("flushed", "<u8"),  # CLOCK_MONOTONIC: when CUPTI's records before these were requested
    ]
)
ROW: Final = np.dtype(
    [
        ("begin", "<u8"),
        ("end", "<u8"),
        ("bytes", "<u8"),  # moved or set; of a range its payload
        ("what", "<u4"),
        ("device", "<u4"),
        ("stream", "<u4"),  # of a range its domain: a text
        ("correlation", "<u4"),
        ("name", "<u4"),  # a text
        ("thread", "<u4"),
        ("graph", "<u4"),
        ("detail", "<u4"),  # of a copy direction and memory, CUPTI's; of a range its payload's type
    ]
)
CLOCK: Final = np.dtype([("monotonic", "<u8"), ("cupti", "<u8"), ("error", "<u8")])
RECORD: Final = np.dtype(
    [("time", "<u8"), ("pid", "<u4"), ("tid", "<u4"), ("bytes", "<u4"), ("unused", "<u4")]
)  # put before a message by the probe
MOST_ROWS: Final = (MESSAGE_BYTES - HEADER.itemsize) // ROW.itemsize
MOST_TEXT: Final = MESSAGE_BYTES - HEADER.itemsize

_C_TYPES = {"<u2": "uint16_t", "<u4": "uint32_t", "<u8": "uint64_t"}


def _struct(name: str, dtype: np.dtype[np.void]) -> list[str]:
    fields = [f"  {_C_TYPES[dtype[field].str]} {field};" for field in dtype.names or ()]
    return [f"struct {name} {{", *fields, "};"]


def c_header() -> str:
    """The same for the library."""
    lines = [
        "#include <stdint.h>",
        *_struct("header", HEADER),
        *_struct("row", ROW),
        *_struct("moment", CLOCK),
    ]
    for prefix, values in (("MESSAGE", Message), ("WHAT", What), ("STATE", InsideState)):
        lines += [f"#define {prefix}_{one.name} {int(one)}" for one in values]
    lines += [f"#define MESSAGE_BYTES {MESSAGE_BYTES}", f"#define MOST_ROWS {MOST_ROWS}"]
    lines += [f"#define MOST_TEXT {MOST_TEXT}", f"#define LAYOUT {VERSION}", f"#define HAND {FUNCTION}"]
    return "\n".join(lines) + "\n"
