"""Sends the metrics to an OpenTelemetry collector: OTLP over HTTP, by the official exporter.

Names have dots and no unit (``gputop.cuda.call.duration`` in ``s``), from which the receivers' Prometheus
rules derive those of /metrics. Values count from the daemon's start, so nothing is queued for a failed
export.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.util.re import parse_env_headers
from prometheus_client import Metric as Family

from gputop.errors import USAGE, CommandError
from gputop.serve.metrics.post import is_roots_alone, post, trusting

_LOG = logging.getLogger(__name__)
_PATH: Final = "/v1/metrics"
_EVERY: Final = "OTEL_METRIC_EXPORT_INTERVAL"  # ms; its other variables are read by the exporter itself
_EVERY_S: Final = 15.0
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_PLAIN: Final = frozenset({"user-agent", "x-scope-orgid"})  # of headers: any other may be a secret
LAST_S: Final = 5.0  # that the end waits for what is being sent
_UNITS: Final = {"_seconds": "s", "_bytes": "By"}
_SUM_SUFFIX, _COUNT_SUFFIX, _BUCKET_SUFFIX = "_sum", "_count", "_bucket"
Labels = tuple[tuple[str, str], ...]


class LocalSession(requests.Session):
    """The exporter's HTTP session, over ``post``. Keeps the error, which the exporter only logs.

    Attributes:
        why: Why the last export failed, or "".
    """

    why = ""
    _context: ssl.SSLContext | None = None

    def request(self, *_words: Any, **named: Any) -> requests.Response:
        """Send, as the exporter calls it. Raises OSError."""
        headers = {str(name): str(value) for name, value in (named["headers"] or {}).items()}
        try:
            answer = post(named["url"], headers, named["data"], float(named["timeout"]), self.context)
        except OSError as error:
            self.why = _reason(error)
            raise
        # a redirect is not followed and is a failure, although the exporter counts it as a success
        self.why = "" if answer.status < 300 else f"it answers {answer.status} {answer.reason}"
        response = requests.Response()
        response.status_code, response.reason = answer.status, answer.reason
        if answer.retry_after:
            response.headers["Retry-After"] = answer.retry_after
        return response

    def context(self) -> ssl.SSLContext:
        """Return the TLS context; certificates are read once. Raises OSError."""
        if self._context is None:
            self._context = trusting(self.verify, self.cert)
        return self._context


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    return error.strerror or str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Destination:
    """Destination of exports."""

    name: str
    exporter: OTLPMetricExporter
    session: LocalSession
    every_s: float


def destination(endpoint: str, every_s: float | None = None) -> Destination:
    """Return the destination that ``--otlp`` names.

    Args:
        endpoint: An HTTP address; without a path, OTLP's path of metrics is added.
        every_s: Interval; None: from the environment.

    Raises:
        CommandError: The address or one of OpenTelemetry's variables is invalid.
    """
    parts = urlsplit(endpoint)
    try:
        place = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    except ValueError:
        place = None
    if parts.scheme not in ("http", "https") or not place:
        raise CommandError(f"{endpoint!r} is not a collector's address, such as http://127.0.0.1:4318", USAGE)
    path = _PATH if parts.path in ("", "/") else parts.path
    if (secret := _secret(parts)) and not is_roots_alone(parts.scheme, parts.hostname or "", parts.port):
        raise CommandError(
            f"{secret} would be sent in the clear to {place}: name an https:// address, or a port of this "
            "machine that only root can bind (below 1024)",
            USAGE,
        )
    for logger in ("opentelemetry", "urllib3"):  # their lines would go to standard error; a sentence is ours
        logging.getLogger(logger).addHandler(logging.NullHandler())
    session = LocalSession()
    try:
        every = float(os.environ.get(_EVERY) or 1e3 * _EVERY_S) / 1e3 if every_s is None else every_s
        exporter = OTLPMetricExporter(endpoint=parts._replace(path=path).geturl(), session=session)
    except ValueError as error:
        raise CommandError(f"a variable of OpenTelemetry (OTEL_…) is invalid: {error}", USAGE) from error
    if every <= 0:
        raise CommandError(f"{_EVERY} is no time in ms: {os.environ[_EVERY]!r}", USAGE)
    return Destination(f"{parts.scheme}://{place}{path}", exporter, session, every)


def _secret(parts: SplitResult) -> str:
    """Return the name of a possible secret among the headers, or ""."""
    if parts.username is not None:
        return "the password in the address"
    for variable in _HEADERS:
        headers = parse_env_headers(os.environ.get(variable, ""), liberal=True)
        if secret := sorted(set(headers) - _PLAIN):
            return f"the header {secret[0]} of {variable}"
    return ""


class Sender:
    """Exports in a thread of its own; only ``stop`` waits for it, for a few seconds."""

    def __init__(
        self,
        to: Destination,
        collect: Callable[[], Iterable[Family]],
        who: Mapping[str, str],
        report: Callable[[str], None],
    ) -> None:
        """Export nothing yet.

        Args:
            to: The destination.
            collect: Makes the families of /metrics.
            who: Attributes of the resource; ``OTEL_RESOURCE_ATTRIBUTES`` adds others.
            report: Called with a sentence when the destination becomes unreachable, and when it
                is reachable again.
        """
        self._to, self._collect, self._report = to, collect, report
        self._resource = Resource.create(dict(who))
        self._start_ns = time.time_ns()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gputop-otlp", daemon=True)
        self.sent = self.failed = 0
        self._in_vain = 0  # since the last success

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Export a last time if the previous one succeeded, and end."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(LAST_S)
        self._to.exporter.shutdown()

    def _run(self) -> None:
        while not self._ending.wait(self._to.every_s):
            self._send()
        if not self._in_vain:
            self._send()

    def _send(self) -> None:
        try:
            families = list(self._collect())
            data = metrics_data(families, self._resource, self._start_ns, time.time_ns())
            result = self._to.exporter.export(data)
        except Exception:  # the next one may come; else the thread would be gone without a word
            _LOG.exception("metrics cannot be sent")
            self._missed("gputop failed (-v shows the error)")
            return
        if result is MetricExportResult.SUCCESS and not self._to.session.why:
            self.sent += 1
            if self._in_vain:
                self._report(f"metrics reach {self._to.name} again, after {self._in_vain} failed exports")
            self._in_vain = 0
        elif not self._ending.is_set():
            self._missed(self._to.session.why or "they are too large for one request")

    def _missed(self, why: str) -> None:
        self.failed += 1
        self._in_vain += 1
        _LOG.info("metrics do not reach %s: %s", self._to.name, why)
        if self._in_vain == 1:
            self._report(
                f"metrics do not reach {self._to.name}: {why}; the next export, in {self._to.every_s:g} s, "
                "holds all counts since the start"
            )


def metrics_data(families: Iterable[Family], resource: Resource, start_ns: int, now_ns: int) -> MetricsData:
    """Convert metric families to the SDK's."""
    metrics = [_metric(family, start_ns, now_ns) for family in families if family.samples]
    scope = ScopeMetrics(InstrumentationScope("gputop"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, start_ns: int, now_ns: int) -> Metric:
    name, unit = family.name, ""
    for suffix, known in _UNITS.items():
        if name.endswith(suffix):
            name, unit = name.removesuffix(suffix), known
    if family.type == "info":
        name += "_info"  # its value is 1; OTLP has no such type
    return Metric(name.replace("_", "."), family.documentation, unit, _data(family, unit, start_ns, now_ns))


def _data(family: Family, unit: str, start_ns: int, now_ns: int) -> Sum | Gauge | Histogram:
    if family.type == "histogram":
        return Histogram(list(_histograms(family, start_ns, now_ns)), AggregationTemporality.CUMULATIVE)
    number = float if unit == "s" else int
    points = [
        NumberDataPoint(sample.labels, start_ns, now_ns, number(sample.value)) for sample in family.samples
    ]
    if family.type == "counter":
        return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(points)


def _histograms(family: Family, start_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Points of cumulative buckets: OTLP's buckets are not cumulative."""
    below: dict[Labels, dict[float, int]] = {}
    rest: dict[tuple[str, Labels], float] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name.endswith(_BUCKET_SUFFIX):
            below.setdefault(labels, {})[float(sample.labels["le"])] = int(sample.value)
        else:
            rest[sample.name.removeprefix(family.name), labels] = sample.value
    unknown: Any = None  # what the least and the most were
    for labels, buckets in below.items():
        bounds = sorted(buckets)
        ends = [0, *(buckets[bound] for bound in bounds)]
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            count=int(rest[_COUNT_SUFFIX, labels]),
            sum=rest[_SUM_SUFFIX, labels],
            bucket_counts=[end - begin for begin, end in pairwise(ends)],
            explicit_bounds=bounds[:-1],  # the last one is infinity
            min=unknown,
            max=unknown,
        )
