"""``gputop serve``: the one process of root that observes always, for everybody on the machine."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import socket
from types import FrameType
from typing import Any

from gputop.commands.command import Command
from gputop.commands.flags import add_probes
from gputop.commands.session import Session, open_session
from gputop.commands.version import program_version
from gputop.commands.words import bounded, size
from gputop.errors import CommandError
from gputop.explain.live import LiveExplainer
from gputop.process.interrupts import heeded
from gputop.process.say import say
from gputop.serve.answers import send_past
from gputop.serve.client import asked
from gputop.serve.daemon import Daemon
from gputop.serve.hub import Hub, listen
from gputop.serve.notify import Notifier
from gputop.serve.view import ROOT
from gputop.serve.wire import SOCKET, packed
from replay.history import History

_LOG = logging.getLogger(__name__)
_MEMORY = "/dev/shm"
_POLL_S = 0.2  # nobody waits for the newest moment; the ring holds what comes meanwhile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what can be typed."""
    parser.add_argument("--socket", default=SOCKET, metavar="PATH", help=f"where clients find it ({SOCKET})")
    parser.add_argument(
        "--history",
        type=size,
        default=200 << 20,
        metavar="SIZE",
        help="memory for records of the past (200M)",
    )
    parser.add_argument(
        "--minutes",
        type=bounded(1, 1440, "minutes"),
        default=10.0,
        metavar="N",
        help="its length at most (10)",
    )
    parser.add_argument("--off", action="store_true", help="end the daemon that runs: no probe is left")
    parser.add_argument("--simgpu", action="store_true", help="use the simulated GPU's NVML")
    add_probes(parser)
    parser.set_defaults(rate=1.0)


def serve(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    if options.off:
        asked(options.socket, "off")
        return 0
    if os.geteuid() != ROOT:
        raise CommandError("gputop serve observes everybody's programs, which takes root: sudo gputop serve")
    options.pid, options.command = None, []
    listener = _listen(options.socket)
    try:
        return _served(options, listener)
    finally:
        listener.close()
        _unlink(options.socket)


def _listen(path: str) -> socket.socket:
    try:
        return listen(path)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandError(
                f"a gputop daemon answers at {path} already; gputop serve --off ends it"
            ) from error
        raise CommandError(f"no socket can be made at {path}: {error.strerror}") from error


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        _LOG.info("the socket stays at %s: %s", path, error.strerror)


def _served(options: argparse.Namespace, listener: socket.socket) -> int:
    session = open_session(
        options, record_to=None, output=None, rate_hz=options.rate, keeps=True, poll_s=_POLL_S
    )
    if session.reason:
        session.source.abandon()
        raise CommandError(f"gputop serve counts calls, which takes eBPF: {session.reason}")
    notifier = Notifier()
    history = History(
        session.header,
        limit_bytes=options.history,
        span_ns=int(options.minutes * 60e9),
        directory=_MEMORY if os.path.isdir(_MEMORY) else None,
    )
    explainer = LiveExplainer(session.header, unseen_share=0.005)
    ended: list[str] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        ended.append("switched off by root" if number == signal.SIGUSR1 else "stopped")
        session.source.close()

    def off(connection: socket.socket, uid: int, _message: dict[str, Any]) -> None:
        _switch_off(session, connection, uid, ended)

    hub = Hub(
        listener,
        lambda uid: {"version": program_version(), **daemon.status(uid), "clients": hub.count()},
        {"snap": lambda connection, uid, message: send_past(daemon, connection, uid, message), "off": off},
    )
    daemon = Daemon(session.header, history, explainer, followers=hub.followers, publish=hub.publish)
    ending = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, *heeded()}
    previous = {number: signal.signal(number, stop) for number in ending}
    try:
        session.release()
        explainer.start()
        hub.start()
        _observe(session, daemon, notifier)
    finally:
        notifier.tell("STOPPING=1")
        session.source.abandon()
        hub.close(f"the daemon has ended: {ended[0] if ended else 'it cannot go on'}")
        explainer.close()
        history.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def _observe(session: Session, daemon: Daemon, notifier: Notifier) -> None:
    ready = False
    for item in session.items():
        if not daemon.take(item):
            continue
        if not ready:
            ready = True
            notifier.tell("READY=1", f"STATUS=observing, process {os.getpid()}")
            say("observing; gputop attach shows it, snap keeps the last minutes, serve --off ends it")
        notifier.tell("WATCHDOG=1")


def _switch_off(session: Session, connection: socket.socket, uid: int, ended: list[str]) -> None:
    """Ends the daemon for root; everybody else is told who may."""
    if uid != ROOT:
        connection.sendall(packed({"k": "error", "text": "only root may switch the daemon off"}))
        return
    ended.append("switched off by root")
    connection.sendall(packed({"k": "done"}))
    session.source.close()


COMMAND = Command(
    description="Observe always, for everybody on this machine, as the only process of root. Its clients "
    "(gputop attach, gputop snap) need no rights; each user sees their own processes.",
    add_arguments=add_arguments,
    run=serve,
)
