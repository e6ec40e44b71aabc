"""Uses a command as a person does, for a test that watches it: ``python -I used_by_hand.py WAY PROGRAM …``.

Ways: ``terminal`` presses keys on a screen, ``browser`` opens the page of ``gputop web``, ``assistant`` puts
a question to ``gputop mcp --http``. Exit status 0: the command did its work, and ended when it was to end.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

PATIENCE_S = 240.0  # a hang; a slow machine takes a minute under strace
SHOWN = re.compile(rb"\x1b\[\?1049h.*[A-Za-z]{4}", re.S)
# through the screen's pages and dialogs, and out
KEYS = (
    "2",
    "3",
    "4",
    "5",
    "1",
    "?",
    "\x1b",
    "e",
    "\x1b",
    "c",
    "\x1b",
    "\r",
    "\x1b",
    "j",
    "s",
    "/",
    "x",
    "\r",
    "p",
)
QUESTION = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-03-26",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def on_terminal(words: list[str]) -> int:
    """Presses keys on the command's screen; its status."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 40, 140, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color"}
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environment)
    keys, shown, last, until = (
        [*KEYS, *("\x1b", "q") * 5],
        b"",
        time.monotonic(),
        time.monotonic() + PATIENCE_S,
    )
    while process.poll() is None and time.monotonic() < until:
        if select.select([master], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):
                shown += os.read(master, 65_536)
        if keys and SHOWN.search(shown) and time.monotonic() > last + 0.2:
            last = time.monotonic()
            os.write(master, keys.pop(0).encode())
    if process.poll() is None or not SHOWN.search(shown):
        process.kill()
        sys.stderr.write(shown[-2000:].decode(errors="replace"))
        return 1
    return process.wait()


def in_browser(words: list[str]) -> int:
    """Opens the page that the command serves, and its screen."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from tests.web_pages import asked, frame, steering

    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        timer = threading.Timer(PATIENCE_S, process.kill)
        timer.start()
        assert process.stdout is not None
        found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stdout)), None)
        if found is None:
            return 1
        assert asked(found[0])[0] == http.HTTPStatus.OK
        with steering(found[0]) as connection:
            connection.sendall(frame(json.dumps(["resize", {"width": 120, "height": 40}])))
            connection.settimeout(PATIENCE_S)
            seen, until = 0, time.monotonic() + 20
            while seen < 4000 and time.monotonic() < until:
                seen += len(connection.recv(65_536))
                connection.sendall(frame(json.dumps(["stdin", "2"])))
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        status = process.wait(PATIENCE_S)
        timer.cancel()
        return status if seen >= 4000 else 1


def by_assistant(words: list[str]) -> int:
    """Asks the command's server one question."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([*words, "--http", str(port)], stderr=subprocess.PIPE) as process:
        until, answer = time.monotonic() + PATIENCE_S, 0
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        while not answer and time.monotonic() < until:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
                connection.request("POST", "/mcp", json.dumps(QUESTION), headers)
                answer = connection.getresponse().status
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
        return 0 if answer == http.HTTPStatus.OK else 1


WAYS = {"terminal": on_terminal, "browser": in_browser, "assistant": by_assistant}

if __name__ == "__main__":
    sys.exit(WAYS[sys.argv[1]](sys.argv[2:]))
