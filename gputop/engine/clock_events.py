"""Why a GPU's clocks are as they are: NVML's bits in words, and which of them cost time."""

from __future__ import annotations

# bits of nvmlClocksEventReasons
_WORDS = {
    0x1: "idle",
    0x2: "set by the user",
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "temperature",
    0x40: "temperature (hardware)",
    0x80: "power brake",
    0x100: "display",
}
# A fault, or a limit of cooling or of the supply. A power limit at full load is as it should be.
HELD = 0x8 | 0x20 | 0x40 | 0x80


def words(bits: int) -> tuple[str, ...]:
    """The reasons in words; bits that are not known by their number.

    Args:
        bits: As NVML gives them.
    """
    known = [text for bit, text in _WORDS.items() if bits & bit]
    unknown = bits & ~sum(_WORDS)
    return (*known, *([f"0x{unknown:x}"] if unknown else []))


def held_down(bits: int | None) -> bool:
    """Whether the clocks are lower than they could be, through heat or the supply of power."""
    return bits is not None and bool(bits & HELD)
