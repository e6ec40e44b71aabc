#!/usr/bin/env python3
"""Draws the pictures of the README from the recordings, as the screen shows them.

One SVG a picture in docs/pictures/. They hold text, not pixels, and name no font to be fetched.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path

from gputop.playback.player import ReplayFeed
from gputop.ui.app import GputopApp
from replay.reader import SessionReader

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
PATIENCE_S = 30.0
BEFORE_END = 4  # marks: later the programs have ended
_FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_INTERPRETER = re.compile(r"((?:/[\w.-]+)+)/bin/python")  # of the machine that made the recording


@dataclass(frozen=True)
class Picture:
    """A recording, the size of the terminal, and the keys pressed before it is drawn."""

    name: str
    recording: str
    size: tuple[int, int]
    keys: tuple[str, ...] = ()


ALL = (
    Picture("screen", "dataloader-workers", (120, 40)),
    Picture("wide", "dataloader-workers", (200, 50)),
    Picture("chain", "dataloader-workers", (120, 30), ("enter",)),
    Picture("call", "storm", (120, 30), ("up", "enter", "enter")),
)


async def drawn(picture: Picture) -> str:
    """The picture as SVG."""
    reader = SessionReader(ROOT / "recordings" / f"{picture.recording}.msgpack")
    feed = ReplayFeed(reader, len(reader.marks) - BEFORE_END, playing=False)
    feed.start()
    app = GputopApp(feed, mode="replay", title=f"{picture.recording}.msgpack")
    async with app.run_test(size=picture.size) as pilot:
        for _ in range(int(PATIENCE_S / 0.1)):
            if feed.explained().report is not None:
                break
            await asyncio.sleep(0.1)
        app.poll()
        await pilot.press(*picture.keys)
        await pilot.pause()
        svg = app.export_screenshot(title=f"gputop replay recordings/{picture.recording}.msgpack")
    feed.close()
    return _INTERPRETER.sub(_somewhere, _FONT_FACES.sub("", svg))


def _somewhere(path: re.Match[str]) -> str:
    """A path as long, of no machine that there is."""
    return "/home/user/venvs/train".ljust(len(path[1]), "-")[: len(path[1])] + "/bin/python"


def main() -> None:
    """Draws all of them."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    os.environ.pop("NO_COLOR", None)
    for picture in ALL:
        (PICTURES / f"{picture.name}.svg").write_text(asyncio.run(drawn(picture)), encoding="utf-8")


if __name__ == "__main__":
    main()
