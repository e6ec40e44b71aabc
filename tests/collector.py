"""An OTLP receiver for tests: decodes the bytes that come by HTTP with OpenTelemetry's own messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.conftest import needed
from tests.waiting import HANGS_S

Key = tuple[str, tuple[tuple[str, str], ...]]
_UNITS = {"s": "_seconds", "By": "_bytes", "": ""}


@dataclass
class Received:
    """What came.

    Attributes:
        requests: One a sending, decoded.
        status: What is answered; 0: nothing, ever.
        came: Set with each.
    """

    requests: list[Any] = field(default_factory=list)
    status: int = 200
    came: threading.Event = field(default_factory=threading.Event)
    tried: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def address(self) -> str:
        """As ``--otlp`` takes it."""
        return f"http://127.0.0.1:{self.port}"

    def newest(self) -> dict[Key, float]:
        """Samples of the last request, as :func:`in_prometheus_words`."""
        return in_prometheus_words(self.requests[-1])


@contextmanager
def receiving(port: int = 0) -> Iterator[Received]:
    """One that listens on this machine."""
    service = needed("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.tried += 1
            if not received.status:
                received.came.set()
                received.over.wait(HANGS_S)
                return
            if received.status == 200 and self.path == "/v1/metrics":
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                received.requests.append(service.ExportMetricsServiceRequest.FromString(body))
            self.send_response(received.status if self.path == "/v1/metrics" else 404)
            self.send_header("Content-Length", "0")
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            received.came.set()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    received.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        received.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def in_prometheus_words(request: Any) -> dict[Key, float]:
    """Each sample by the name and labels that Prometheus' rules of translation give it.

    https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
    """
    told: dict[Key, float] = {}

    def put(name: str, point: Any, value: float, **more: str) -> None:
        labels = {one.key: one.value.string_value for one in point.attributes} | more
        key = name, tuple(sorted(labels.items()))
        assert key not in told, key
        told[key] = value

    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                name = metric.name.replace(".", "_") + _UNITS[metric.unit]
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                for point in data.data_points:
                    if kind == "histogram":
                        assert data.aggregation_temporality == 2
                        count = 0
                        bounds = [*map(repr, point.explicit_bounds), "+Inf"]
                        for bound, more in zip(bounds, point.bucket_counts, strict=True):
                            count += more
                            put(f"{name}_bucket", point, count, le=bound)
                        assert count == point.count
                        put(f"{name}_sum", point, point.sum)
                        put(f"{name}_count", point, point.count)
                        continue
                    value = getattr(point, point.WhichOneof("value"))
                    if kind == "sum":
                        assert data.is_monotonic
                        assert data.aggregation_temporality == 2
                    put(name + "_total" * (kind == "sum"), point, value)
    return told
