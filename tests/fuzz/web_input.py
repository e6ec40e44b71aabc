"""What reaches ``gputop web``: headers of any request, and messages of whatever has the connection."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from aiohttp import WSMsgType

from gputop.web import screens, web_server
from gputop.web.guard import PROTOCOL, Guard
from tests.fuzz import mutation
from tests.fuzz.target import Target

_GUARD = Guard("127.3.4.5", 8000, "T" * 43)
_RIGHT = {
    "Host": "127.3.4.5:8000",
    "Origin": "http://127.3.4.5:8000",
    "Sec-WebSocket-Protocol": f"{PROTOCOL}, {_GUARD.token}",
}
_ORIGINS = {f"http://{name}" for name in _GUARD.names}
_MESSAGES: tuple[Any, ...] = (
    ["stdin", "j"], ["stdin", "\x1b[<35;10;10M"], ["stdin", "\x1b[200~" + "paste" * 100 + "\x1b[201~"],
    ["resize", {"width": 80, "height": 24}], ["ping", 1732820000.5], ["blur"], ["focus"], [],
    ["resize", {"width": 1e308, "height": "7"}], {"0": "stdin", "1": "x"}, "stdin", [["stdin"], "x"],
)  # fmt: skip
_HEADERS = b"H"  # the first byte; any other: messages, one a line


def _seeds() -> list[bytes]:
    asked = [_RIGHT, {"Host": "localhost:8000"}, {**_RIGHT, "Origin": "http://[::1]:8000"}, {}]
    return [
        *(_HEADERS + json.dumps(one).encode() for one in asked),
        *(b"M" + json.dumps(one).encode() for one in _MESSAGES),
        b"M" + b"\n".join(json.dumps(one).encode() for one in _MESSAGES),
        b"M" + b"[" * 5000,
        b'M["resize",{"width":Infinity,"height":NaN}]',
    ]


def _mutate(data: bytes, random: Random) -> bytes:
    kind, lines = data[:1], data[1:].split(b"\n")
    at = random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            lines[at] = mutation.some_bytes(lines[at], random)
        case 1:
            lines.insert(at, json.dumps(random.choice(_MESSAGES)).encode())
        case 2:
            lines *= random.choice((2, 50))
        case _:
            try:
                lines[at] = json.dumps(mutation.plain(json.loads(lines[at]), random), default=repr).encode()
            except (ValueError, RecursionError):
                lines[at] = mutation.some_bytes(lines[at], random)
    return kind + b"\n".join(lines)[:150_000]


def _run(data: bytes, _folder: Path) -> None:
    if data[:1] == _HEADERS:
        _ask(data[1:])
    else:
        asyncio.run(_hear(data[1:].decode("utf-8", "replace").split("\n")))


def _ask(data: bytes) -> None:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(told, dict):
        return
    headers = {str(name): str(value) for name, value in told.items()}
    page, steered = (_GUARD.refusal(headers, socket=socket) == "" for socket in (False, True))
    right = headers.get("Sec-WebSocket-Protocol", "").replace(" ", "") == f"{PROTOCOL},{_GUARD.token}"
    if page and headers.get("Host") not in _GUARD.names:
        raise AssertionError("another name was answered")
    if steered and not (page and right and headers.get("Origin") in _ORIGINS):
        raise AssertionError("the screen was given away")


class _Browser:
    """One that sends these messages."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts

    async def __aiter__(self) -> Any:
        for text in self._texts:
            yield SimpleNamespace(type=WSMsgType.TEXT, data=text, json=lambda text=text: json.loads(text))

    async def send_json(self, data: Any) -> None:
        json.dumps(data)


async def _hear(texts: list[str]) -> None:
    typed = 0

    async def type_it(data: bytes) -> None:
        nonlocal typed
        typed += len(data)

    async def resize(width: int, height: int) -> None:
        columns, lines = screens.bounded(width, height)
        if not (20 <= columns <= 500 and 5 <= lines <= 200):
            raise AssertionError("a size out of bounds")

    browser: Any = _Browser(texts)
    await web_server.WebServer((), _GUARD).hear(browser, type_it, resize)
    first, a_second = web_server.TYPED[1], web_server.TYPED[0]
    if typed > 6 * (
        first + a_second * (web_server.MOST_OWED_S + 1)
    ):  # a character is six bytes of JSON at most
        raise AssertionError(f"{typed} bytes were taken at once")


TARGET = Target(_seeds, _mutate, _run)
