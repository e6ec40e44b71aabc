"""Alerts of the daemon on its counted figures: a log line, a command, a webhook.

The command runs without a shell, as nobody; its input consists of numbers, gputop's own words and the rule,
never of a name that a program chose.
"""

from __future__ import annotations

import json
import logging
import queue
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from gputop.analysis.window import Verdict
from gputop.format import NS_PER_S
from gputop.playback.alerts import ERRORS, SLOWER, Alert, Alerts, Figures, Rule
from gputop.process.stdio import print_message
from gputop.serve.metrics.daemon_totals import DaemonTotals
from gputop.serve.metrics.post import is_roots_alone, post, trusting
from gputop.serve.rate_limit import RateLimiter
from probes import api
from probes.samples import listed_gpus, lost_until
from probes.source import GPUS, MARK, Item, Sample

_LOG = logging.getLogger(__name__)
NOBODY: Final = 65534
COMMAND_S: Final = 30  # time limit of a command
WEBHOOK_S: Final = 10.0
AGAIN_S: Final = 600.0  # shortest interval of notifications of a rule and its subject
AN_HOUR: Final = 30  # notifications of a rule: one user's processes cannot use up those of other rules
LOGGED: Final = (0.1, 60.0)  # lines of the log in a second, and at once
MOST_WAITING: Final = 64
_HOUR_S: Final = 3600.0
_FRESH_NS: Final = 30 * NS_PER_S  # the daemon explains every eight seconds
_OF_GPUS: Final[Mapping[str, tuple[str, float]]] = {
    "util": ("utilization_percent", 1.0),
    "power": ("power_milliwatts", 1e-3),
    "temp": ("temperature_celsius", 1.0),
}


@dataclass(frozen=True, slots=True)
class AlertTargets:
    """Receivers of alerts beside the log: a command (its words), an HTTP address; empty: none."""

    command: tuple[str, ...] = ()
    webhook: str = ""


def command_words(text: str) -> tuple[str, ...]:
    """Return the words of ``--alert-command``. Raises ValueError for no absolute command."""
    words = tuple(shlex.split(text))
    if not words or not words[0].startswith("/"):
        raise ValueError(f"{text!r} is no command with its full path, such as /usr/local/bin/page")
    return words


def webhook_address(text: str) -> str:
    """Return the address of ``--alert-webhook``. Raises ValueError if it is invalid."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text!r} is not an address such as https://example.org/alerts")
    if parts.username is not None and not is_roots_alone(parts.scheme, parts.hostname, parts.port):
        raise ValueError(
            f"the password in the address would be sent in the clear to {parts.hostname}: name an https:// "
            "address, or a port of this machine that only root can bind (below 1024)"
        )
    return text


class Alarms:
    """Evaluates rules on the daemon's counts; ``consume`` and ``consume_verdict`` may be of two threads."""

    def __init__(
        self,
        rules: Sequence[Rule],
        targets: AlertTargets,
        totals: DaemonTotals,
        *,
        host: str = "",
        reduced: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._alerts, self._targets, self._totals = Alerts(rules), targets, totals
        self._host, self._reduced, self._clock = host, reduced, clock
        self._verdict: Verdict | None = None
        self._gpus: Sample | None = None
        self._failed: dict[tuple[int, int], int] = {}
        self._rates: dict[str, float] = {}
        self._rates_ns = 0
        self._lost = 0
        self._newest: dict[tuple[str, str], float] = {}
        self._hour: dict[str, deque[float]] = {rule.text: deque() for rule in rules}
        self._paces = {rule.text: RateLimiter(*LOGGED, clock) for rule in rules}
        self._unlogged = 0
        self.left_out = 0
        self._waiting: queue.Queue[tuple[Alert, int] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="gputop-alarms", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End; pending alerts are dropped."""
        if self._thread.ident is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(timeout=1.0)

    # -- figures ------------------------------------------------------------------------------------

    def consume_verdict(self, verdict: Verdict) -> None:
        self._verdict = verdict

    def consume(self, item: Item) -> None:
        """Consume an item; at a mark, evaluate the rules."""
        if not isinstance(item, Sample):
            return
        if item.kind == GPUS:
            self._gpus = item
        elif item.kind == MARK:
            self._lost = sum(lost_until(item).values())
            self._count_failures(item.time_ns)
            for alert in self._alerts.hold(item.time_ns, lambda figure: self._now(figure, item.time_ns)):
                self._notify(alert)

    def _count_failures(self, now_ns: int) -> None:
        """Failed calls a second since the previous mark, by process and function."""
        with self._totals.held:
            failed = {
                (pid, op): calls.errors
                for pid, process in self._totals.processes.items()
                for op, calls in process.calls.items()
                if calls.errors
            }
        seconds = max(now_ns - self._rates_ns, 1) / NS_PER_S
        if self._rates_ns:
            self._rates = {
                f"process {pid}, {api.BY_OP[min(op, len(api.BY_OP) - 1)].name}": more / seconds
                for (pid, op), count in failed.items()
                if (more := count - self._failed.get((pid, op), 0)) > 0
            }
        self._failed, self._rates_ns = failed, now_ns

    def _now(self, figure: str, now_ns: int) -> Figures:
        verdict = self._verdict
        if verdict is not None and now_ns - verdict.end_ns > _FRESH_NS:
            verdict = None
        if figure == "reduced":
            return [("gputop", float(self._reduced()))]
        if figure == "lost":
            return [("gputop", float(self._lost))]
        if figure == ERRORS:
            return list(self._rates.items())
        if figure == "idle":
            gpus = verdict.report.gpus if verdict is not None else ()
            return [(gpu.label, 100 * gpu.account.proved_ns / max(gpu.span_ns, 1)) for gpu in gpus]
        if figure in ("step", SLOWER):
            steps = verdict.steps if verdict is not None else ()
            return [(f"process {step.pid}", step.median_ns / 1e6) for step in steps]
        return [
            (f"GPU {int(row['index'])}", value)
            for row in listed_gpus(self._gpus)
            if "index" in row and (value := _of_gpu(row, figure)) is not None
        ]

    # -- reporting ------------------------------------------------------------------------------------

    def _notify(self, alert: Alert) -> None:
        self._log(alert)
        now, key = self._clock(), (alert.rule.text, alert.subject)
        self._newest = {one: at for one, at in self._newest.items() if now - at < AGAIN_S}
        hour = self._hour[alert.rule.text]
        while hour and now - hour[0] >= _HOUR_S:
            hour.popleft()
        if not (self._targets.command or self._targets.webhook):
            return
        if key in self._newest or len(hour) >= AN_HOUR:
            self.left_out += 1
            return
        try:
            self._waiting.put_nowait((alert, self.left_out))
        except queue.Full:
            self.left_out += 1
            return
        self.left_out = 0
        self._newest[key] = now
        hour.append(now)

    def _log(self, alert: Alert) -> None:
        """Print a line, rate-limited so that short-lived processes cannot fill the disk."""
        pace = self._paces[alert.rule.text]
        if pace.owed_s():
            self._unlogged += 1
            return
        pace.spend()
        left_out, self._unlogged = self._unlogged, 0
        print_message(
            f"alert: {alert.text()}" + (f" ({left_out} alerts before it are not logged)" if left_out else "")
        )

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            body = json.dumps(_as_json(*waiting, self._host)).encode()
            if self._targets.command:
                _run_command(self._targets.command, body)
            if self._targets.webhook:
                _post(self._targets.webhook, body)


def _of_gpu(row: Mapping[str, Any], figure: str) -> float | None:
    if figure == "mem":
        used, total = row.get("memory_used_bytes"), row.get("memory_total_bytes")
        known = isinstance(used, int) and isinstance(total, int) and total > 0
        return 100 * used / total if known and used is not None and total is not None else None
    key, scale = _OF_GPUS[figure]
    value = row.get(key)
    return value * scale if isinstance(value, int | float) else None


def _as_json(alert: Alert, left_out: int, host: str) -> dict[str, Any]:
    rule = alert.rule
    return {
        "alert": rule.name or rule.text,
        "rule": rule.text,
        "subject": alert.subject,
        "value": round(alert.value, 3),
        "text": alert.text(),
        "host": host,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "left_out": left_out,
    }


def _run_command(words: Sequence[str], body: bytes) -> None:
    """Run it as nobody. Only ``timeout`` of the same user can end it: this process has no right to."""
    timed = ["timeout", "--kill-after=1", str(COMMAND_S), *words]
    try:
        done = subprocess.run(
            timed,
            input=body,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            cwd="/",
            start_new_session=True,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            timeout=2 * COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        print_message(f"--alert-command was not run: {error}")
    else:
        if done.returncode:
            print_message(f"--alert-command ended with status {done.returncode}")


def _post(address: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "gputop"}
    host = urlsplit(address).hostname
    try:
        answer = post(address, headers, body, WEBHOOK_S, lambda: trusting(None, None))
    except OSError as error:
        print_message(f"--alert-webhook: {host} did not accept the alert: {error.strerror or error}")
    else:
        if answer.status >= 300:
            print_message(f"--alert-webhook: {host} answered {answer.status}")
