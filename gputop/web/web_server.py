"""Serves the screen to browsers: textual-serve's terminal in gputop's page, behind a guard."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import textual_serve
from aiohttp import WSMsgType, web
from textual_serve.download_manager import DownloadManager

from gputop.serve.rate_limit import RateLimiter
from gputop.web.guard import PROTOCOL, Guard
from gputop.web.screens import PATIENCE_S, Observation, OneScreen

_LOG = logging.getLogger(__name__)
MOST_BROWSERS = 8
MOST_MESSAGE_BYTES = 65_536  # from a browser: keys, clicks, pastes
TYPED = (4096.0, 65_536.0)  # bytes of messages per second, and in a burst; mouse moves need half as much
LEAST = 32  # bytes that a short message counts as, since a key may redraw the screen
MOST_OWED_S = 4.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'none'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """The server, for at most ``MOST_BROWSERS`` browsers."""

    def __init__(
        self, words: Sequence[str], guard: Guard, observing: Callable[[], Observation] | None = None
    ) -> None:
        """Prepare the server.

        Args:
            words: The command of each browser's screen.
            guard: Decides on requests.
            observing: Makes the process that observes for all screens; None: not needed.
        """
        self._words, self._guard = tuple(words), guard
        self._downloads = DownloadManager()  # required by textual-serve, unused
        self._observing = observing
        self._observation: Observation | None = None
        self._browsers = 0

    def serve_on(self, listening: socket.socket) -> None:
        web.run_app(self._make_app(), sock=listening, print=None, access_log=None, shutdown_timeout=2.0)

    async def _make_app(self) -> web.Application:
        @web.middleware
        async def guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
            refused = self._refused(request)
            response = await handler(request) if refused is None else refused
            if not response.prepared:
                response.headers.update(_HEADERS)
            return response

        app = web.Application(middlewares=[guarded])
        app.add_routes(
            [
                web.get("/", _file("app_index.html")),
                web.get("/page.js", _file("page.js")),
                web.get("/ws", self.handle_websocket),
                web.static("/static", Path(textual_serve.__file__).parent / "static"),
            ]
        )
        app.on_shutdown.append(self.on_shutdown)
        if self._observing is not None:
            self._observation = self._observing()
        return app

    async def on_shutdown(self, _app: web.Application) -> None:
        if self._observation is not None:
            await self._observation.stop()

    def _refused(self, request: web.Request) -> web.Response | None:
        """Return the answer to a request that is refused, or None."""
        refused = self._guard.refusal(request.headers, socket=request.path == "/ws")
        return web.Response(status=403, text=f"{refused}\n") if refused else None

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one browser until it disconnects."""
        if self._browsers >= MOST_BROWSERS:
            raise web.HTTPServiceUnavailable(text=f"{MOST_BROWSERS} browsers are already connected\n")
        self._browsers += 1
        websocket = web.WebSocketResponse(
            heartbeat=15, max_msg_size=MOST_MESSAGE_BYTES, protocols=(PROTOCOL,)
        )
        size = _number(request.query.get("width"), 80), _number(request.query.get("height"), 24)
        try:
            await websocket.prepare(request)
            await self._show(request, websocket, size)
        except asyncio.CancelledError:
            await websocket.close()
        except ConnectionError:
            _LOG.info("a browser has gone")
        finally:
            self._browsers -= 1
        return websocket

    async def _show(
        self, request: web.Request, websocket: web.WebSocketResponse, size: tuple[int, int]
    ) -> None:
        """Show a screen, after observing has started."""
        observation = self._observation
        if observation is None:
            await self._draw(request, websocket, size)
            return
        try:
            if refused := await observation.join():
                await websocket.send_bytes(f"{refused}\r\n".encode())
                await websocket.close()
            else:
                await self._draw(request, websocket, size)
        finally:
            await asyncio.shield(observation.leave())

    async def _draw(
        self, request: web.Request, websocket: web.WebSocketResponse, size: tuple[int, int]
    ) -> None:
        async def close() -> None:
            await websocket.close()

        screen = OneScreen(self._words, websocket.send_bytes, close, self._downloads)
        await screen.start(*size)
        try:
            await self._listen(request, websocket, screen.send_bytes, screen.set_terminal_size)
        finally:
            with suppress(ConnectionError):
                await screen.stop()

    async def _listen(
        self,
        request: web.Request,
        websocket: web.WebSocketResponse,
        typed: Callable[[bytes], Awaitable[Any]],
        resized: Callable[[int, int], Awaitable[None]],
    ) -> None:
        """Receive messages, then close the connection."""
        try:
            await self.hear(websocket, typed, resized)
        finally:
            if not websocket.closed and request.transport is not None:
                request.transport.abort()  # a clean end would keep reading until the browser's end

    async def hear(
        self,
        websocket: web.WebSocketResponse,
        typed: Callable[[bytes], Awaitable[Any]],
        resized: Callable[[int, int], Awaitable[None]],
    ) -> None:
        """Forward messages until one is invalid, they exceed the rate limit, or the screen accepts none."""
        pace = RateLimiter(*TYPED)
        async for message in websocket:
            if message.type != WSMsgType.TEXT or pace.spend(max(len(message.data), LEAST)) > MOST_OWED_S:
                return
            try:
                kind, data = (*message.json(), None)[:2]
                if kind == "stdin":
                    await asyncio.wait_for(typed(str(data).encode()), PATIENCE_S)
                elif kind == "resize":
                    await asyncio.wait_for(resized(int(data["width"]), int(data["height"])), PATIENCE_S)
                elif kind == "ping":
                    await websocket.send_json(["pong", data])
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError, asyncio.TimeoutError):
                return


def _file(name: str) -> _Handler:
    """Return a handler that serves a file of this folder."""
    path = Path(__file__).parent / name

    async def served(_request: web.Request) -> web.StreamResponse:
        return web.FileResponse(path)

    return served


def _number(text: str | None, otherwise: int) -> int:
    try:
        return int(text or otherwise)
    except ValueError:
        return otherwise
