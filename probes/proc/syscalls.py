"""System calls in which threads block: their names, and those with a file descriptor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from probes.process.syscall_numbers import BLOCKING, OF_FILES, parsed
from probes.samples import section

UNKNOWN_SYSCALL: Final = 0xFFF0  # in one, or in none: not known for this stay off the CPU


def machine_of(header: Mapping[str, Any]) -> str:
    """A recording's, as ``uname -m``; recordings from before it was written came from x86-64."""
    return str(section(header, "machine").get("architecture", "x86_64"))


@cache
def _names(machine: str) -> dict[int, str]:
    return {number: name for text in (OF_FILES, BLOCKING) for name, number in parsed(text, machine).items()}


def name(number: int, machine: str) -> str:
    """The system call of a number, on a machine as ``uname -m`` calls it; empty when it is not listed."""
    return _names(machine).get(number, "")


@cache
def of_files(machine: str) -> npt.NDArray[np.bool_]:
    """For each number of 16 bits, true if the first argument of that system call is a file descriptor."""
    table = np.zeros(1 << 16, np.bool_)
    table[list(parsed(OF_FILES, machine).values())] = True
    return table
