"""Assembles the daemon: ring, counts, explanation, triggers, kept sessions, metrics, socket, systemd."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gputop.analysis.live import LiveExplainer
from gputop.analysis.window import Verdict
from gputop.playback.alerts import Rule
from gputop.playback.restart import begun_anew
from gputop.process.stdio import print_message
from gputop.serve.budget import Budget
from gputop.serve.clients.answering import Answering, send_past
from gputop.serve.clients.hub import Hub
from gputop.serve.clients.showing import Showing
from gputop.serve.clients.user_view import ROOT
from gputop.serve.clients.wire import packed
from gputop.serve.daemon import Daemon
from gputop.serve.flight_recorder import Keeper, KeepLimits
from gputop.serve.metrics.alarms import Alarms, AlertTargets
from gputop.serve.metrics.idle import Idle
from gputop.serve.metrics.process_info import People
from gputop.serve.triggers import REQUESTED, Trigger, Triggers
from probes.ebpf.degradation import Reach
from probes.ebpf.loader import ProbeError
from probes.samples import section
from probes.schema import Kind
from probes.source import Item, Sample
from replay.past.history import History

if TYPE_CHECKING:
    from gputop.serve.metrics.metric_families import CurrentFigures, GputopCollector
    from gputop.serve.metrics.metrics_http import Address, MetricsServer
    from gputop.serve.metrics.otlp import Destination, Sender


class Notifier:
    """Sends ``READY=1``, ``WATCHDOG=1``, ``STOPPING=1`` to systemd, if that started the daemon."""

    def __init__(self) -> None:
        path = os.environ.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._socket = (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if path else None
        )

    def send(self, *lines: str) -> None:
        """Send lines such as ``STATUS=…``; errors are ignored."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)


_LOG = logging.getLogger(__name__)
_MEMORY = "/dev/shm"
HEALTHY_NS = 5_000_000_000  # largest age of the newest mark


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a daemon."""

    version: str  # version of gputop
    history_bytes: int = 200 << 20  # memory for past records
    minutes: float = 10.0  # longest past to hold
    keep_dir: str = ""  # folder of kept sessions; "": none
    limits: KeepLimits = field(default_factory=KeepLimits)  # limits of kept sessions
    metrics: Address | None = None  # address of the metrics server; None: none
    most_rows: int = 5_000  # functions and classes of processes with series of their own
    budget: float | None = None  # CPU budget as a share of all CPUs; None: unlimited
    otlp: Destination | None = None  # destination of metrics by OTLP; None: none
    alerts: tuple[Rule, ...] = ()  # alert rules
    alert_targets: AlertTargets = field(default_factory=AlertTargets)  # receivers of alerts, beside the log


class Service:
    """Consumes the source's items in one thread; all other parts have threads of their own."""

    def __init__(
        self,
        header: Mapping[str, Any],
        listener: socket.socket,
        settings: Settings,
        switch_off: Callable[[str], None],
        probed: Callable[[], int] = lambda: 0,
        reduce: Callable[[Reach, str], None] = lambda reach, why: None,
        call_ns: float = 0.0,
    ) -> None:
        """Assemble the parts; nothing is started.

        Raises:
            OSError: The folder for kept sessions cannot be made, or metrics cannot be served there.
        """
        self._settings, self._switch_off, self._probed = settings, switch_off, probed
        self._people = People()
        self.explained_anew = 0  # restarts of the explanation
        self._reduce, self._calls = reduce, 0
        self._budget: Budget | None = None
        if settings.budget is not None:
            self._budget = Budget(settings.budget, call_ns, os.cpu_count() or 1)
        self._keep_requested = False  # a signal handler must not take a lock
        self._history = History(
            header,
            limit_bytes=settings.history_bytes,
            span_ns=int(settings.minutes * 60e9),
            directory=_MEMORY if os.path.isdir(_MEMORY) else None,
        )
        self._explainer = LiveExplainer(header, self._consume_verdict, unseen=True)
        self.hub = Hub(listener, self._status, {"snap": self._send_past, "off": self._off})
        self.showing = Showing(header, self.hub)
        self.daemon = Daemon(
            header,
            self._history,
            self._explainer,
            joining=self.hub.is_joined,
            put=self.showing.put,
            most_rows=settings.most_rows,
        )
        self._idle = Idle()
        self._alarms = self._alarms_of(settings, header)
        self.keeper = Keeper(self.daemon, settings.keep_dir, settings.limits) if settings.keep_dir else None
        self._triggers = Triggers(self._keep, self._idle.consume_step)
        self._metrics = self._metrics_server(settings.metrics) if settings.metrics is not None else None
        self._sender = self._sender_to(settings.otlp) if settings.otlp is not None else None

    def start(self) -> None:
        parts = (self._explainer, self.hub, self.showing)
        for part in (*parts, self.keeper, self._alarms, self._metrics, self._sender):
            if part is not None:
                part.start()

    def consume(self, item: Item) -> bool:
        """Consume an item; True for a mark."""
        self._triggers.consume(item)  # before an exit removes the owner
        self._people.consume(item)
        marked = self.daemon.consume(item)
        if not isinstance(item, Sample):
            self._calls += int(np.count_nonzero(item["kind"] == np.uint8(Kind.CALL)))
        if self._alarms is not None:
            self._alarms.consume(item)  # after the totals, which hold the tick now
        if marked:
            self._keep_within_budget()
            if self._explainer.failure:
                self._explain_anew()
            processes = set(self.daemon.totals.processes)
            self._people.forget(processes)
            self._idle.forget(processes)
        if marked and self._keep_requested:
            self._keep_requested = False
            self._keep(Trigger(REQUESTED, 0, self._history.end_ns, "requested by root (SIGUSR2)"))
        return marked

    def _explain_anew(self) -> None:
        self.explained_anew += 1
        self._explainer = self.daemon.explainer = begun_anew(
            self._explainer, self.daemon.header, self._history, self._consume_verdict, unseen=True
        )

    def _keep_within_budget(self) -> None:
        budget = self._budget
        if budget is not None and budget.consume(time.monotonic(), self.observing_s(), self._calls):
            _LOG.info("observing at step %d: %s", budget.reach, budget.sentence() or "everything")
            # in a thread: detaching blocks for a tenth of a second
            change = threading.Thread(
                target=self._change, args=(budget.reach, budget.sentence()), name="gputop-budget", daemon=True
            )
            change.start()

    def observing_s(self) -> float:
        """CPU time of the daemon without clients' requests, which must not reduce observation."""
        requests_s = self.hub.spent_s + self.showing.spent_s + self.daemon.requests_s
        return (
            time.process_time() - requests_s - (self._metrics.spent_s if self._metrics is not None else 0.0)
        )

    def _change(self, reach: Reach, why: str) -> None:
        try:
            self._reduce(reach, why)
        except ProbeError as error:
            _LOG.warning("%s", error)

    def request_keep(self) -> None:
        """Keep the last minutes at the next mark; safe in a signal handler."""
        self._keep_requested = True

    def close(self, why: str) -> None:
        """End all parts: pending sessions are kept first, clients receive the reason."""
        if self._metrics is not None:
            self._metrics.stop()
        if self._sender is not None:
            self._sender.stop()
        if self.keeper is not None:
            self.keeper.close()
        if self._alarms is not None:
            self._alarms.close()
        self.showing.close()
        self.hub.close(why)
        self._explainer.close()
        self._history.close()

    def _keep(self, trigger: Trigger) -> None:
        if self.keeper is not None:
            self.keeper.keep(trigger)

    def _consume_verdict(self, verdict: Verdict) -> None:
        self._idle.consume(verdict)
        self._triggers.consume_verdict(verdict)
        if self._alarms is not None:
            self._alarms.consume_verdict(verdict)

    def _alarms_of(self, settings: Settings, header: Mapping[str, Any]) -> Alarms | None:
        if not settings.alerts:
            return None
        return Alarms(
            settings.alerts,
            settings.alert_targets,
            self.daemon.totals,
            host=str(section(header, "machine").get("host") or ""),
            reduced=lambda: int(self._budget.reach) if self._budget is not None else 0,
        )

    # -- metrics ------------------------------------------------------------------------------------

    def _metrics_server(self, address: Address) -> MetricsServer:
        from prometheus_client import CollectorRegistry

        from gputop.serve.metrics.metrics_http import MetricsServer

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._collector())
        return MetricsServer(address, registry, self._healthy)

    def _sender_to(self, to: Destination) -> Sender:
        from gputop.serve.metrics.otlp import Sender

        machine = self.daemon.header.get("machine", {})
        who = {"service.name": "gputop", "service.version": self._settings.version}
        if host := str(machine.get("host") or ""):
            # the default is random at each start and would begin new series
            who |= {"host.name": host, "service.instance.id": host}
        return Sender(to, self._collector().collect, who, print_message)

    def _collector(self) -> GputopCollector:
        from gputop.serve.metrics.metric_families import GputopCollector

        return GputopCollector(self.daemon.totals, self._idle, self._now)

    def _healthy(self) -> bool:
        mark = self.daemon.mark
        return mark is not None and time.monotonic_ns() - mark.time_ns < HEALTHY_NS

    def _now(self) -> CurrentFigures:
        from gputop.serve.metrics.metric_families import CurrentFigures

        mark = self.daemon.mark.data if self.daemon.mark is not None else {}
        header, keeper = self.daemon.header, self.keeper
        return CurrentFigures(
            lost=dict(mark.get("lost", {})),
            own_cpu_s=time.process_time(),
            own_bytes=int(mark.get("own_rss_bytes", 0)),
            probes=self._probed(),
            kept=keeper.written if keeper is not None else 0,
            not_kept=keeper.left_out if keeper is not None else 0,
            clients=self.hub.count(),
            budget_step=int(self._budget.reach) if self._budget is not None else 0,
            uuids=self._people.uuids,
            processes=self._people.known,
            figures=self._people.figures(time.monotonic_ns()),
            sent=(self._sender.sent, self._sender.failed) if self._sender is not None else None,
            build={
                "version": self._settings.version,
                "kernel": str(header.get("machine", {}).get("kernel", "")),
                "driver": str(header.get("driver", "")),
            },
        )

    # -- requests of clients ---------------------------------------------------------------------------

    def _status(self, uid: int) -> dict[str, Any]:
        status = {"version": self._settings.version, "pid": os.getpid(), **self.daemon.status(uid)}
        status["clients"], status["explained_anew"] = self.hub.count(), self.explained_anew
        if self._budget is not None:
            status["budget"] = {
                "step": int(self._budget.reach),
                "share": self._budget.share,
                "given_up": self._budget.sentence(),
            }
        if self.keeper is not None:
            status["kept"] = [
                {"path": path, "bytes": size, "seconds_ago": int(time.time()) - at}
                for path, owner, size, at in self.keeper.files()
                if uid in (ROOT, owner)
            ]
            status["kept_now"], status["not_kept"] = self.keeper.written, self.keeper.left_out
            status["keep_failures"] = list(self.keeper.failures) if uid == ROOT else []
        return status

    def _send_past(self, connection: Answering, uid: int, message: dict[str, Any]) -> None:
        send_past(self.daemon, connection, uid, message)

    def _off(self, connection: Answering, uid: int, _message: dict[str, Any]) -> None:
        """Stop the daemon for root; refuse others."""
        if uid != ROOT:
            connection.sendall(packed({"k": "error", "text": "only root may stop the daemon"}))
            return
        connection.sendall(packed({"k": "done"}))
        self._switch_off("stopped by root")
