"""The numbers under which names of kernels are told, as those of stacks are."""

from __future__ import annotations

from typing import Final

_BIT: Final = 1 << 61  # below the bit of stacks, so that no number means both
_MASK: Final = (1 << 61) - 1
# splitmix64, of 61 bits: each step can be taken back, as the constants are odd
_MIX: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_BACK: Final = tuple(pow(one, -1, _BIT) for one in _MIX)


def kernel_number(pid: int, address: int) -> int:
    """The number under which the name of a kernel is told, as that of a stack."""
    value = (address + pid * _MIX[0]) & _MASK
    value = (value ^ value >> 30) * _MIX[1] & _MASK
    value = (value ^ value >> 27) * _MIX[2] & _MASK
    return value ^ value >> 31 | _BIT


def kernel_address(pid: int, number: int) -> int:
    """The address, where the process is known, of which ``kernel_number`` made this number; below 2**61."""
    value = _unfolded(number & _MASK, 31) * _BACK[2] & _MASK
    value = _unfolded(value, 27) * _BACK[1] & _MASK
    return (_unfolded(value, 30) - pid * _MIX[0]) & _MASK


def _unfolded(value: int, shift: int) -> int:
    """What ``value ^ value >> shift`` was made of."""
    found = value
    while value := value >> shift:
        found ^= value
    return found


def is_kernel_number(number: int) -> bool:
    """Whether a number is that of a kernel, and not of a stack of callers."""
    return number >> 61 == 1
