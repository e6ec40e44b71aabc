"""Serves the screen to browsers: textual-serve's server, behind a guard, with a page of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web
from textual_serve.server import Server, to_int

from gputop.web.guard import NO_COOKIE, Guard
from gputop.web.screens import OneScreen, SharedScreen, Viewer

_LOG = logging.getLogger(__name__)
MOST_BROWSERS = 8
MOST_MESSAGE_BYTES = 65_536  # of what a browser sends: keys, clicks, pastes
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'",
}
# a redirect would still be of the page that the link was on, and a strict cookie would not go with it
_WELCOME = (
    '<!DOCTYPE html><meta http-equiv="refresh" content="0;url=/">'
    '<link rel="icon" href="data:,"><title>gputop</title>'
)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer(Server):
    """The screen for at most so many browsers."""

    def __init__(self, words: Sequence[str], guard: Guard, title: str, *, shared: bool) -> None:
        """Serve nothing yet.

        Args:
            words: The command whose screen is shown.
            guard: Who may see it.
            title: What the page is called.
            shared: Whether all browsers see one screen, with one set of probes.
        """
        address = guard.address.partition("/?")[0]
        super().__init__("", guard.host, guard.port, title, public_url=address)
        self.templates_path = Path(__file__).parent
        self._words, self._guard = tuple(words), guard
        self._shared = SharedScreen(self._words, self.download_manager) if shared else None
        self._browsers = 0

    def serve_on(self, listening: socket.socket) -> None:
        """Serves until an interrupt."""
        web.run_app(self._make_app(), sock=listening, print=None, access_log=None, shutdown_timeout=2.0)

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()

        @web.middleware
        async def guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
            refused = self._refused(request)
            response = await handler(request) if refused is None else refused
            if not response.prepared:
                response.headers.update(_HEADERS)
            return response

        app.middlewares.append(guarded)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Says nothing: the command has."""

    async def on_shutdown(self, app: web.Application) -> None:
        """Ends what was started."""
        if self._shared is not None:
            await self._shared.stop()

    def _refused(self, request: web.Request) -> web.Response | None:
        """What who may not is told; who comes for the first time with the token gets the cookie."""
        guard = self._guard
        refused = guard.refusal(request.headers, request.cookies, socket=request.path == "/ws")
        if refused == NO_COOKIE and request.path == "/" and guard.is_token(request.query.get("token", "")):
            response = web.Response(text=_WELCOME, content_type="text/html")
            response.set_cookie(guard.cookie, guard.session, httponly=True, samesite="Strict", path="/")
            return response
        return web.Response(status=403, text=f"{refused}\n") if refused else None

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """One browser, from its first look to its last."""
        if self._browsers >= MOST_BROWSERS:
            raise web.HTTPServiceUnavailable(text=f"{MOST_BROWSERS} browsers look at it already\n")
        self._browsers += 1
        websocket = web.WebSocketResponse(heartbeat=15, max_msg_size=MOST_MESSAGE_BYTES)
        size = to_int(request.query.get("width", ""), 80), to_int(request.query.get("height", ""), 24)
        try:
            await websocket.prepare(request)
            await (self._share(websocket, size) if self._shared else self._show(websocket, size))
        except asyncio.CancelledError:
            await websocket.close()
        except ConnectionError:
            _LOG.info("a browser has gone")
        finally:
            self._browsers -= 1
        return websocket

    async def _show(self, websocket: web.WebSocketResponse, size: tuple[int, int]) -> None:
        """A screen of its own."""

        async def close() -> None:
            await websocket.close()

        screen = OneScreen(self._words, websocket.send_bytes, close, self.download_manager)
        await screen.start(*size)
        try:
            await self._listen(websocket, screen.send_bytes, screen.set_terminal_size)
        finally:
            with suppress(ConnectionError):
                await screen.stop()

    async def _share(self, websocket: web.WebSocketResponse, size: tuple[int, int]) -> None:
        """The screen of all."""
        shared = self._shared
        assert shared is not None

        async def close() -> None:
            await websocket.close()

        viewer = Viewer(websocket.send_bytes, close)
        await shared.join(viewer, *size)
        try:
            await self._listen(
                websocket, shared.type, lambda width, height: shared.resize(viewer, width, height)
            )
        finally:
            with suppress(ConnectionError):
                await shared.leave(viewer)

    async def _listen(
        self,
        websocket: web.WebSocketResponse,
        typed: Callable[[bytes], Awaitable[Any]],
        resized: Callable[[int, int], Awaitable[None]],
    ) -> None:
        """What a browser sends; what is no message of our page ends the connection."""
        async for message in websocket:
            if message.type != WSMsgType.TEXT:
                return
            try:
                kind, data = (*message.json(), None)[:2]
                if kind == "stdin":
                    await typed(str(data).encode())
                elif kind == "resize":
                    await resized(int(data["width"]), int(data["height"]))
                elif kind == "ping":
                    await websocket.send_json(["pong", data])
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                return
