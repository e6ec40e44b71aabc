"""The same metrics as /metrics, sent to an OpenTelemetry collector: OTLP over HTTP, by the official exporter.

Names have dots and no unit (``gputop.cuda.call.duration`` in ``s``): with the rules of Prometheus a receiver
comes to those of /metrics. What is sent counts from the daemon's start, so that each sending holds what the
one before could not tell: nothing is queued.
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
    """What the exporter sends by: an exchange of ours. Remembers why the last one was in vain, which the
    exporter only logs.

    Attributes:
        why: In words; "": it was not.
    """

    why = ""
    _context: ssl.SSLContext | None = None

    def request(self, *_words: Any, **named: Any) -> requests.Response:
        """As the exporter calls it; raises OSError."""
        headers = {str(name): str(value) for name, value in (named["headers"] or {}).items()}
        try:
            answer = post(named["url"], headers, named["data"], float(named["timeout"]), self.context)
        except OSError as error:
            self.why = _reason(error)
            raise
        # a redirect is not followed, and is no success either, whatever the exporter takes it for
        self.why = "" if answer.status < 300 else f"it answers {answer.status} {answer.reason}"
        response = requests.Response()
        response.status_code, response.reason = answer.status, answer.reason
        if answer.retry_after:
            response.headers["Retry-After"] = answer.retry_after
        return response

    def context(self) -> ssl.SSLContext:
        """What TLS checks the other side by; the certificates are read once. Raises OSError."""
        if self._context is None:
            self._context = trusting(self.verify, self.cert)
        return self._context


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    return error.strerror or str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Destination:
    """Where metrics are sent."""

    name: str
    exporter: OTLPMetricExporter
    session: LocalSession
    every_s: float


def destination(endpoint: str, every_s: float | None = None) -> Destination:
    """What ``--otlp`` names.

    Args:
        endpoint: An address of HTTP; without a path that of OTLP's metrics is taken.
        every_s: Instead of what the environment says.

    Raises:
        CommandError: It is none, or a variable of OpenTelemetry says what makes no sense.
    """
    parts = urlsplit(endpoint)
    try:
        place = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    except ValueError:
        place = None
    if parts.scheme not in ("http", "https") or not place:
        raise CommandError(f"{endpoint!r} is no address of a collector, as http://127.0.0.1:4318", USAGE)
    path = _PATH if parts.path in ("", "/") else parts.path
    if (secret := _secret(parts)) and not is_roots_alone(parts.scheme, parts.hostname or "", parts.port):
        raise CommandError(
            f"{secret} would go to whoever holds {place}, in the clear: name a collector by https://, or "
            "one of this machine at a port that root alone can hold (below 1024)",
            USAGE,
        )
    for logger in ("opentelemetry", "urllib3"):  # their lines would go to standard error; a sentence is ours
        logging.getLogger(logger).addHandler(logging.NullHandler())
    session = LocalSession()
    try:
        every = float(os.environ.get(_EVERY) or 1e3 * _EVERY_S) / 1e3 if every_s is None else every_s
        exporter = OTLPMetricExporter(endpoint=parts._replace(path=path).geturl(), session=session)
    except ValueError as error:
        raise CommandError(f"a variable of OpenTelemetry (OTEL_…) makes no sense: {error}", USAGE) from error
    if every <= 0:
        raise CommandError(f"{_EVERY} is no time in ms: {os.environ[_EVERY]!r}", USAGE)
    return Destination(f"{parts.scheme}://{place}{path}", exporter, session, every)


def _secret(parts: SplitResult) -> str:
    """What may be a secret of all that is sent with the metrics, by its name; "" for nothing."""
    if parts.username is not None:
        return "the password in the address"
    for variable in _HEADERS:
        headers = parse_env_headers(os.environ.get(variable, ""), liberal=True)
        if secret := sorted(set(headers) - _PLAIN):
            return f"the header {secret[0]} of {variable}"
    return ""


class Sender:
    """Sends, in a thread of its own: no thread waits for it but the end, for a few seconds."""

    def __init__(
        self,
        to: Destination,
        collect: Callable[[], Iterable[Family]],
        who: Mapping[str, str],
        report: Callable[[str], None],
    ) -> None:
        """Send nothing yet.

        Args:
            to: Where.
            collect: Makes what /metrics tells.
            who: Attributes of the resource; ``OTEL_RESOURCE_ATTRIBUTES`` adds others.
            report: Takes a sentence when the destination cannot be reached any more, and when it can again.
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
        """Sends a last time where it can be done at once, and ends."""
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
            self._missed("gputop failed (-v tells more)")
            return
        if result is MetricExportResult.SUCCESS and not self._to.session.why:
            self.sent += 1
            if self._in_vain:
                self._report(f"metrics reach {self._to.name} again, after {self._in_vain} tries in vain")
            self._in_vain = 0
        elif not self._ending.is_set():
            self._missed(self._to.session.why or "they are too large for one request")

    def _missed(self, why: str) -> None:
        self.failed += 1
        self._in_vain += 1
        _LOG.info("metrics do not reach %s: %s", self._to.name, why)
        if self._in_vain == 1:
            self._report(
                f"metrics do not reach {self._to.name}: {why}; that is tried again every "
                f"{self._to.every_s:g} s, and what is counted meanwhile is told then"
            )


def metrics_data(families: Iterable[Family], resource: Resource, start_ns: int, now_ns: int) -> MetricsData:
    """Metric families as the SDK's exporter takes them."""
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
    """Points of cumulative buckets: OTLP's count each call once."""
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
