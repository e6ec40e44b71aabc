"""The processes whose screens browsers show: one a browser for a recording, one for all of them live."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

SMALLEST, LARGEST = (20, 5), (500, 200)  # columns and lines of a browser's terminal
PATIENCE_S = 5.0  # for a screen that is told to end, or to take what was typed, and for a browser
LAST_WORDS_S = 1.0  # from its last output to its end
# what a terminal is told once, at the start: its other page, no cursor, the mouse, marked pastes
_PRELUDE = b"\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h\x1b[?2004h"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def bounded(width: int, height: int) -> tuple[int, int]:
    """A size within bounds: it comes from outside, and takes memory."""
    return (
        min(max(int(width), SMALLEST[0]), LARGEST[0]),
        min(max(int(height), SMALLEST[1]), LARGEST[1]),
    )


class OneScreen(AppService):
    """A process of its own for one browser."""

    def __init__(
        self,
        words: Sequence[str],
        write_bytes: Callable[[bytes], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        downloads: DownloadManager,
    ) -> None:
        """Start nothing yet.

        Args:
            words: The command; no shell looks at them.
            write_bytes: Takes what the screen draws.
            close: Is called when the screen has ended.
            downloads: Unused: nothing is handed out.
        """
        self._words = tuple(words)
        super().__init__(
            "",
            write_bytes=write_bytes,
            write_str=_dropped,
            close=close,
            download_manager=downloads,
        )

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        size = bounded(width, height)
        self._process = process = await asyncio.create_subprocess_exec(
            *self._words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(*size),
            preexec_fn=_ends_with_us,
        )
        self._stdin = process.stdin
        return process

    async def stop(self) -> None:
        """End the process, whatever it does, and wait until it has ended."""
        process = self._process  # which the task that is waited for still asks for
        if process is None:
            return
        with suppress(asyncio.TimeoutError, ConnectionError):
            await asyncio.wait_for(super().stop(), PATIENCE_S)
        with suppress(asyncio.TimeoutError):  # what reads it may have ended before it has
            await asyncio.wait_for(process.wait(), LAST_WORDS_S)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        self._process = None
        await process.wait()

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Tell the screen its size."""
        columns, lines = bounded(width, height)
        await super().set_terminal_size(columns, lines)


class Viewer:
    """One browser that looks at a shared screen."""

    def __init__(
        self, write_bytes: Callable[[bytes], Awaitable[None]], close: Callable[[], Awaitable[None]]
    ) -> None:
        """Of unknown size."""
        self.write_bytes, self.close = write_bytes, close
        self.size = LARGEST


class SharedScreen:
    """One process for all browsers: they see the same, and its probes are there once.

    It is as large as the smallest of them, as tmux does it.
    """

    def __init__(self, words: Sequence[str], downloads: DownloadManager) -> None:
        """Start nothing yet."""
        self._words, self._downloads = words, downloads
        self._viewers: list[Viewer] = []
        self._screen: OneScreen | None = None
        self._short = False

    async def join(self, viewer: Viewer, width: int, height: int) -> None:
        """Another browser: it is told what was told at the start, and all is drawn anew."""
        viewer.size = bounded(width, height)
        self._viewers.append(viewer)
        if self._screen is None:
            self._screen = OneScreen(self._words, self._draw, self._ended, self._downloads)
            await self._screen.start(*viewer.size)
            return
        await viewer.write_bytes(_PRELUDE)
        await self._fit(anew=True)

    async def leave(self, viewer: Viewer) -> None:
        """A browser has gone; with the last one the process ends."""
        if viewer in self._viewers:
            self._viewers.remove(viewer)
        if not self._viewers:
            await self.stop()
        else:
            await self._fit()

    async def resize(self, viewer: Viewer, width: int, height: int) -> None:
        """A browser has another size."""
        viewer.size = bounded(width, height)
        await self._fit()

    async def type(self, data: bytes) -> None:
        """What was typed or clicked in one of them."""
        if self._screen is not None:
            await self._screen.send_bytes(data)

    async def stop(self) -> None:
        """End the process."""
        screen, self._screen = self._screen, None
        if screen is not None:
            await screen.stop()

    async def _fit(self, *, anew: bool = False) -> None:
        """As large as the smallest; all is only drawn anew where the size changes: by a line, if need be."""
        sizes = [viewer.size for viewer in self._viewers]
        columns, lines = min(size[0] for size in sizes), min(size[1] for size in sizes)
        self._short ^= anew  # its page tells its size at once, too: of two sizes only the last one counts
        if self._screen is not None:
            await self._screen.set_terminal_size(columns, lines - self._short)

    async def _draw(self, data: bytes) -> None:
        for viewer in list(self._viewers):
            try:
                await asyncio.wait_for(viewer.write_bytes(data), PATIENCE_S)
            except ConnectionError:  # it has gone, and its own task will say so
                continue
            except asyncio.TimeoutError:  # the others see the same screen, and would wait with it
                self._viewers.remove(viewer)
                await viewer.close()

    async def _ended(self) -> None:
        self._screen = None
        for viewer in list(self._viewers):
            await viewer.close()


async def _dropped(_text: str) -> None:
    """Addresses to open and files to take: the screen has none for a browser."""


def _ends_with_us() -> None:
    """In the child: whoever kills the server leaves no screen behind."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    os.setsid()
