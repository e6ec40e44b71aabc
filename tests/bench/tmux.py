"""A terminal for gputop: a tmux server of our own, and what its screen shows."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

PROMPT = "ready:"
WIDTH, HEIGHT = 120, 40
_POLL_S = 0.01


class Terminal:
    """A shell in a terminal; the server is killed at the end.

    Args:
        temporary: Where its programs leave their temporary files.
        size: Columns and lines.
    """

    _count = itertools.count()

    def __init__(self, temporary: Path, size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
        self._size = size
        # a socket of its own for each: a server that was killed takes a moment to go
        self._socket = str(temporary / f"tmux-{next(self._count)}")
        # an interactive sh reads the file that ENV names
        start = temporary / "shell"
        start.write_text(f"PS1={PROMPT}\n")
        variables = {"LC_ALL": "C.UTF-8", "TMPDIR": temporary, "ENV": start}
        self._variables = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-f", os.devnull, "-S", self._socket, *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    def __enter__(self) -> Terminal:
        size = ("-x", str(self._size[0]), "-y", str(self._size[1]))
        try:
            self._tmux("new-session", "-d", *size, *self._variables, "sh")
            self.wait(self.at_prompt, 10)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False)

    def keys(self, *words: str) -> None:
        """Types keys, by tmux's names."""
        self._tmux("send-keys", *words)

    def screen(self) -> str:
        """What the screen shows."""
        return self._tmux("capture-pane", "-p")

    def at_prompt(self) -> bool:
        """Whether the shell waits for a command."""
        lines = self.screen().split("\n")
        return any(lines) and [line for line in lines if line.strip()][-1].strip() == PROMPT

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> float:
        """Seconds until ``condition`` holds, looked at every 10 ms.

        Raises:
            TimeoutError: It does not; the message holds the screen.
        """
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > timeout_s:
                raise TimeoutError(f"after {timeout_s} s the screen shows:\n{self.screen()}")
            time.sleep(_POLL_S)
        return time.monotonic() - began

    def shell(self) -> int:
        """Number of the shell, or of what it has executed in its place."""
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def child(self) -> int:
        """Number of the program that the shell runs.

        Raises:
            RuntimeError: It runs none.
        """
        shell = self.shell()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        if not children:
            raise RuntimeError(f"nothing runs any more:\n{self.screen()}")
        return int(children[0])
