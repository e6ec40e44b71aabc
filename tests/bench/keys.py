"""Keys of the screen in a real terminal: how long until something on it has changed."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from statistics import median

from tests.bench.rows import Row
from tests.bench.tmux import Terminal

BOUND_MS = 100.0
_RECORDING = Path(__file__).parents[2] / "recordings" / "dataloader-workers.msgpack"
# what is pressed, and how the row calls it; the first theme loads what the others use
_KEYS = (
    ("[", "a frame back"),
    ("]", "a frame forward"),
    ("Home", "the oldest moment"),
    ("End", "the newest"),
)
_ROUNDS = 3
_PATIENCE_S = 20.0
_REST_S = 1.2


def _pressed(terminal: Terminal, key: str) -> float:
    """Milliseconds from a key to the first change."""
    before, began = terminal.screen(), time.monotonic()
    terminal.keys(key)
    terminal.wait(lambda: terminal.screen() != before, _PATIENCE_S)
    return (time.monotonic() - began) * 1e3


def rows(folder: Path) -> list[Row]:
    """Each key in a paused recording, where nothing else changes; themes from the first on."""
    taken: dict[str, list[float]] = {}
    with Terminal(folder) as terminal:
        terminal.keys(
            shlex.join([sys.executable, "-m", "gputop", "replay", "--at", "2", str(_RECORDING)]), "Enter"
        )
        terminal.wait(lambda: " lost " in terminal.screen(), _PATIENCE_S)
        time.sleep(5 * _REST_S)  # what explains the moment has come
        for _ in range(_ROUNDS):
            for key, name in (*_KEYS, ("T", "theme")):
                time.sleep(_REST_S)
                taken.setdefault(f"key {key}: {name}", []).append(_pressed(terminal, key))
        terminal.keys("q")
        terminal.wait(terminal.at_prompt, _PATIENCE_S)
    return [
        Row(name, max(times) if name.startswith("key T") else median(times), "ms", BOUND_MS, _told(times))
        for name, times in taken.items()
    ]


def _told(times: list[float]) -> str:
    return f"to the first change on the screen: {', '.join(f'{one:.0f}' for one in times)} ms"
