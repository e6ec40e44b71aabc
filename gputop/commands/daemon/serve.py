"""``gputop serve``: the daemon of root, which observes for all users of the machine."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import socket
import time
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING

from gputop.commands.command import VERSION, Command
from gputop.commands.flags import add_alerts, add_probes
from gputop.commands.observation import ObservedRun, open_session
from gputop.commands.words import bounded, size
from gputop.errors import USAGE, CommandError, install_command
from gputop.process.interrupts import heeded
from gputop.process.stdio import print_message
from gputop.serve.clients.client import request_once
from gputop.serve.clients.listening import Listening, listen
from gputop.serve.clients.user_view import ROOT
from gputop.serve.clients.wire import SOCKET
from gputop.serve.flight_recorder import KeepLimits
from gputop.serve.metrics.alarms import AlertTargets, command_words, webhook_address
from gputop.serve.service import Notifier, Service, Settings
from probes.ebpf import callcost
from probes.observe.live_source import LiveSource

if TYPE_CHECKING:
    from gputop.serve.metrics.metrics_http import Address
    from gputop.serve.metrics.otlp import Destination

_LOG = logging.getLogger(__name__)
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_KEPT = "/var/lib/gputop"
_ENDS_S = 300.0  # it writes what it keeps to its end
_POLL_S = 0.2  # no client needs newer data; the ring holds 0.2 s of events


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", default=SOCKET, metavar="PATH", help=f"socket for clients ({SOCKET})")
    parser.add_argument(
        "--history",
        type=size,
        default=200 << 20,
        metavar="SIZE",
        help="memory for the history (200M)",
    )
    parser.add_argument(
        "--minutes",
        type=bounded(1, 1440, "minutes"),
        default=10.0,
        metavar="N",
        help="minutes of history to keep (10)",
    )
    keep = parser.add_argument_group(
        "flight recorder", "Keeps recordings of slow steps, new findings and processes that end badly."
    )
    keep.add_argument("--keep-dir", default=_KEPT, metavar="FOLDER", help=f'folder ({_KEPT}); "": keep none')
    keep.add_argument(
        "--keep-size", type=size, default=2 << 30, metavar="SIZE", help="maximum size of all recordings (2G)"
    )
    for name, default, most, about in (
        ("--before", 120, 3600, "seconds to keep before the event"),
        ("--after", 30, 600, "seconds to keep after the event"),
        ("--every", 600, 86400, "minimum seconds between two recordings of a process"),
    ):
        keep.add_argument(
            name,
            type=bounded(0, most, "s"),
            default=float(default),
            metavar="S",
            help=f"{about} ({default})",
        )
    metrics = parser.add_argument_group("metrics", "Prometheus metrics at /metrics, health at /healthz.")
    metrics.add_argument(
        "--metrics",
        type=_place,
        metavar="[HOST:]PORT",
        help="listen here; default HOST: this machine only",
    )
    metrics.add_argument("--token-file", metavar="FILE", help="require the bearer token in this file")
    metrics.add_argument("--certificate", metavar="FILE", help="certificate and key (PEM), for TLS")
    metrics.add_argument(
        "--otlp",
        metavar="URL",
        help="also send to an OpenTelemetry collector over HTTP (http://127.0.0.1:4318)",
    )
    metrics.add_argument(
        "--max-series",
        type=bounded(100, 1e6, "rows"),
        default=5000.0,
        metavar="N",
        help="maximum number of series per process and function (5000); the rest is pid=other",
    )
    alerts = parser.add_argument_group(
        "alerts", "Rules that fire are written to the log, and sent to a command or a URL."
    )
    add_alerts(alerts)
    alerts.add_argument(
        "--alert-command",
        type=_command,
        default=(),
        metavar="CMD",
        help="run this as user nobody, without a shell, with the alert as JSON on standard input",
    )
    alerts.add_argument(
        "--alert-webhook",
        type=_webhook,
        metavar="URL",
        help="send the alert here as JSON by POST",
    )
    parser.add_argument(
        "--budget",
        type=_percent,
        metavar="PERCENT",
        help="CPU limit for tracing, in gputop and in the programs, in percent of all CPUs (1%%); "
        "above it gputop traces less, step by step",
    )
    parser.add_argument("--stop", action="store_true", help="stop the running daemon and remove its probes")
    parser.add_argument("--off", dest="stop", action="store_true", help=argparse.SUPPRESS)  # its former name
    parser.add_argument("--simgpu", action="store_true", help="use the simulated GPU's NVML")
    add_probes(parser, rate_hz=1.0)


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, nor HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def _command(text: str) -> tuple[str, ...]:
    try:
        return command_words(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _webhook(text: str) -> str:
    try:
        return webhook_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _percent(text: str) -> float:
    return bounded(0.01, 100, "%")(text.removesuffix("%")) / 100


def check(options: argparse.Namespace) -> None:
    """Require a token or TLS for metrics on the network, and rules for alerts."""
    if (options.alert_command or options.alert_webhook) and not options.alerts:
        raise CommandError("--alert-command and --alert-webhook need a rule: --alert GpuWaits", USAGE)
    if options.metrics is None:
        return
    host = options.metrics[0]
    if host not in LOOPBACK and not options.token_file and not options.certificate:
        raise CommandError(
            f"metrics at {host} would be readable by anyone who reaches it: add --token-file or "
            "--certificate",
            USAGE,
        )


def serve(options: argparse.Namespace) -> int:
    if options.stop:
        return _switch_off(options.socket)
    if os.geteuid() != ROOT:
        raise CommandError(
            "gputop serve observes the programs of all users, which needs root: sudo gputop serve"
        )
    options.pid, options.command = None, []
    settings = settings_of(options)
    listening = _listen(options.socket)
    try:
        return _served(options, settings, listening.socket)
    finally:
        listening.close()


def _switch_off(path: str) -> int:
    """End the daemon; return when its probes are removed."""
    request_once(path, "off")
    deadline = time.monotonic() + _ENDS_S
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path):
                return 0
        time.sleep(0.05)
    raise CommandError("the daemon has not ended yet: see its log")


def _listen(path: str) -> Listening:
    try:
        return listen(path)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"a gputop daemon runs at {path} already; gputop serve --stop ends it"
            raise CommandError(text) from error
        raise CommandError(f"cannot create a socket at {path}: {error.strerror}") from error


def _call_ns() -> float:
    """Return an upper bound of a traced call's cost."""
    found = callcost.measured()
    if found is None:
        raise CommandError("--budget needs the cost of a traced call, which cannot be measured here")
    _LOG.info("a traced call costs %.0f ns", found)
    return found


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the daemon's settings; raise CommandError for a wrong address or file."""
    limits = KeepLimits(options.before, options.after, options.every, most_bytes=options.keep_size)
    return Settings(
        VERSION,
        options.history,
        options.minutes,
        options.keep_dir,
        limits,
        _address(options),
        int(options.max_series),
        options.budget,
        otlp_destination(options.otlp) if options.otlp else None,
        tuple(options.alerts),
        AlertTargets(options.alert_command, options.alert_webhook or ""),
    )


def otlp_destination(endpoint: str) -> Destination:
    """Return where metrics are sent; raise CommandError without the packages."""
    try:
        from gputop.serve.metrics.otlp import destination
    except ImportError as error:
        raise CommandError(
            f"--otlp needs packages that are not installed: {install_command('otlp')}"
        ) from error
    return destination(endpoint)


def _address(options: argparse.Namespace) -> Address | None:
    """Return where metrics are served; raise CommandError without the package or a readable token."""
    if options.metrics is None:
        return None
    if find_spec("prometheus_client") is None:
        raise CommandError(f"--metrics needs a package that is not installed: {install_command('serve')}")
    from gputop.serve.metrics.metrics_http import Address

    token = ""
    if options.token_file:
        try:
            with open(options.token_file, encoding="utf-8") as file:
                token = file.read(4096).strip()
        except OSError as error:
            raise CommandError(f"cannot read the token in {options.token_file}: {error.strerror}") from error
        if not token:
            raise CommandError(f"the token file {options.token_file} is empty: write a secret into it")
    host, port = options.metrics
    names = LOOPBACK if host in LOOPBACK and not token else frozenset()
    return Address(host, port, token, options.certificate or "", names)


def _served(options: argparse.Namespace, settings: Settings, listener: socket.socket) -> int:
    call_ns = _call_ns() if options.budget is not None else 0.0
    session = open_session(
        options,
        record_to=None,
        output=None,
        rate_hz=options.rate,
        keeps=True,
        poll_s=_POLL_S,
        annotate_at=os.path.join(os.path.dirname(options.socket), "annotate.sock"),
    )
    if session.reason:
        session.source.abandon()
        raise CommandError(f"gputop serve needs eBPF: {session.reason}")
    notifier = Notifier()
    ended: list[str] = []

    def end(why: str) -> None:
        ended.append(why)
        session.source.close()

    def stop(number: int, _frame: FrameType | None) -> None:
        end("stopped by root" if number == signal.SIGUSR1 else "stopped")

    try:
        live = session.source
        assert isinstance(live, LiveSource)  # since eBPF works
        # clients that write this data redact it
        header = {**session.header, "private": True} if options.private else session.header
        service = Service(header, listener, settings, end, lambda: live.probed, live.reduce, call_ns)
    except OSError as error:
        session.source.abandon()
        metrics = settings.metrics
        what = error.filename or (f"the address {metrics.host}:{metrics.port}" if metrics else "a file")
        raise CommandError(
            f"cannot open {what}: {error.strerror or error}; see --keep-dir, --metrics and --certificate"
        ) from error
    handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, *heeded()), stop)
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    previous[signal.SIGUSR2] = signal.signal(signal.SIGUSR2, lambda *_: service.request_keep())
    try:
        session.release()
        service.start()
        _observe(session, service, notifier)
    finally:
        notifier.send("STOPPING=1")
        session.source.abandon()
        service.close(f"the daemon has ended: {ended[0] if ended else 'it cannot go on'}")
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def _observe(session: ObservedRun, service: Service, notifier: Notifier) -> None:
    ready = False
    for item in session.items():
        if not service.consume(item):
            continue
        if not ready:
            ready = True
            notifier.send("READY=1", f"STATUS=observing, process {os.getpid()}")
            print_message(
                "observing; screen: gputop attach · last minutes: gputop dump · "
                "stop: sudo gputop serve --stop"
            )
        notifier.send("WATCHDOG=1")


COMMAND = Command(
    description="Run a daemon that observes this machine all the time. Its clients "
    "(gputop attach, gputop dump) need no privileges; each user sees their own processes.",
    add_arguments=add_arguments,
    run=serve,
    check=check,
)
