"""Words of a framework, and which texts of gputop use them of a process that has not loaded it."""

from __future__ import annotations

import re
from pathlib import Path

# what only those who use the framework can know; a name of the program's own may be anything, so lines and
# thread names are no text of gputop's
WORDS = {
    "torch": (
        r"PyTorch|\btorch\b|DataLoader|num_workers|pin_memory|persistent_workers|worker_init_fn|autograd"
        r"|\.item\(\)|\.cpu\(\)|\.cuda\(\)|\.numpy\(\)|\.to\(device|non_blocking|tensor(?! core)"
        r"|\bbackward\(\)|expandable_segments|caching allocator|no_sync|foreach|\bDDP\b"
        r"|set_num_threads|optimizer\b|\bTF32\b"
    ),
    "numba": r"[Nn]umba|cuda\.to_device|copy_to_host",
    "cupy": r"CuPy|cupy",
    "triton": r"Triton|triton",
    "jax": r"\bJAX\b|\bjax\b",
    "python": r"\bPython\b|\bGIL\b|py-spy",
}


def foreign(text: str, loads: tuple[str, ...]) -> list[str]:
    """The words in a text that belong to frameworks which are not loaded, in their order."""
    found = [
        (match.start(), match[0])
        for framework, words in WORDS.items()
        if framework not in loads
        for match in re.finditer(words, text)
    ]
    return list(dict.fromkeys(word for _at, word in sorted(found)))


def without_names(text: str, program: Path) -> str:
    """What gputop says itself: without names of functions, files, processes and kernels of the program."""
    text = re.sub(r"\S*\.(?:py|so|cpp|cu|c|pyx)\S*", "", text)  # files, with their lines
    text = re.sub(r"\bat \S+\(\)?", "", text)
    return text.replace(program.stem, "")
