"""The processes whose screens browsers show, one each, and the one that observes for all of them."""

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
PATIENCE_S = 5.0  # for a screen that is told to end, or to take what was typed, and for a browser
LAST_WORDS_S = 1.0  # from its last output to its end
SOCKET_NAME = "screens.sock"
MOST_INPUT = 4096  # bytes of why it cannot observe
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
        columns, lines = bounded(width, height)
        await super().set_terminal_size(columns, lines)


class Observation:
    """The one process that observes for all live screens: its probes are there once for all browsers.

    It begins with the first browser and ends with the last one.
    """

    def __init__(self, words: Callable[[str], Sequence[str]], folder: str) -> None:
        """Start nothing yet.

        Args:
            words: The command that observes for those who connect at a path.
            folder: For that path; no other user may enter it.
        """
        self.path = os.path.join(folder, SOCKET_NAME)
        self._words = tuple(words(self.path))
        self._process: Process | None = None
        self._screens = 0
        self._turn = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    async def join(self) -> str:
        """A screen is to be opened; return "" where it can connect, else why it cannot."""
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
        """A screen has ended; with the last one observing does."""
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
    """Its output is read and dropped."""
    await process.communicate()


async def _dropped(_text: str) -> None:
    """Addresses to open and files to take: the screen has none for a browser."""


def _ends_with_us() -> None:
    """In the child: a killed server leaves no screen behind."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    os.setsid()
