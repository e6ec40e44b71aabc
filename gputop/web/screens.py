"""The processes of the browsers' screens, and the one that observes for all of them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

SMALLEST, LARGEST = (20, 5), (500, 200)  # columns and lines of a browser's terminal
PATIENCE_S = 5.0  # for a screen to end or to accept keys, and for a browser
LAST_WORDS_S = 1.0  # from a screen's last output to its end
SOCKET_NAME = "screens.sock"
MOST_INPUT = 4096  # bytes of an error
_PAINTED = 256  # bytes of output; what a screen sends before it paints is shorter
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def bounded(width: int, height: int) -> tuple[int, int]:
    """Return a requested size within bounds, since it costs memory."""
    return (
        min(max(int(width), SMALLEST[0]), LARGEST[0]),
        min(max(int(height), SMALLEST[1]), LARGEST[1]),
    )


class OneScreen(AppService):
    """The process of one browser."""

    def __init__(
        self,
        words: Sequence[str],
        write_bytes: Callable[[bytes], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        downloads: DownloadManager,
    ) -> None:
        """Prepare a screen.

        Args:
            words: The command, run without a shell.
            write_bytes: Sends output to the browser.
            close: Called when the screen has ended.
            downloads: Required by textual-serve, unused.
        """
        self._words = tuple(words)
        self._written, self._size = 0, (0, 0)
        self._send = write_bytes
        super().__init__(
            "",
            write_bytes=self._forward,
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
        """End the process, by force if needed, and wait for its end."""
        process = self._process  # still read by the task that stops
        if process is None:
            return
        with suppress(asyncio.TimeoutError, ConnectionError):
            await asyncio.wait_for(super().stop(), PATIENCE_S)
        with suppress(asyncio.TimeoutError):  # the reader may have ended before the process
            await asyncio.wait_for(process.wait(), LAST_WORDS_S)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        self._process = None
        await process.wait()

    async def _forward(self, output: bytes) -> None:
        """Send output to the browser, and a size that came too early to the screen."""
        early = self._written < _PAINTED
        self._written += len(output)
        if early and self._written >= _PAINTED and self._size != (0, 0):
            await super().set_terminal_size(*self._size)
        await self._send(output)

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Set the size; Textual loses one that comes before the first painting."""
        self._size = bounded(width, height)
        if self._written >= _PAINTED:
            await super().set_terminal_size(*self._size)


class Observation:
    """The process that observes for all live screens, from the first browser to the last."""

    def __init__(self, words: Callable[[str], Sequence[str]], folder: str) -> None:
        """Prepare the process.

        Args:
            words: Returns the command that observes and listens at a path.
            folder: The folder of that path, which no other user can enter.
        """
        self.path = os.path.join(folder, SOCKET_NAME)
        self._words = tuple(words(self.path))
        self._process: Process | None = None
        self._screens = 0
        self._turn = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    async def join(self) -> str:
        """Start observing for another screen; return "" or an error."""
        async with self._turn:
            self._screens += 1
            if self._process is None or self._process.returncode is not None:
                self._process = await asyncio.create_subprocess_exec(
                    *self._words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, preexec_fn=_ends_with_us
                )
                assert self._process.stdout is not None
                assert self._process.stderr is not None
                if not await self._process.stdout.readline():
                    output = await self._process.stderr.read(MOST_INPUT)
                    await self._process.wait()
                    return (
                        output.decode("utf-8", "replace").strip()
                        or "gputop could not observe: try gputop check"
                    )
                self._reading = asyncio.create_task(_drain(self._process))
        return ""

    async def leave(self) -> None:
        """End observing after the last screen."""
        async with self._turn:
            self._screens -= 1
            if not self._screens:
                await self._end()

    async def stop(self) -> None:
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE_S)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()


async def _drain(process: Process) -> None:
    """Read and drop the output."""
    await process.communicate()


async def _dropped(_text: str) -> None:
    """Ignore addresses to open and downloads, which the screen has none of."""


def _ends_with_us() -> None:
    """End the child with the server, even a killed one."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    os.setsid()
