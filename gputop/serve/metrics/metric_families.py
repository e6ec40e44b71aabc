"""The families of /metrics for prometheus-client; names and units by Prometheus' rules.

Process metadata is on ``gputop_process_info`` alone, to be joined: ``* on(pid) group_left(pod)
gputop_process_info``. GPUs have the labels of NVIDIA's dcgm-exporter, ``gpu`` and ``UUID``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from gputop.engine.calls.histogram import EXPONENTS
from gputop.serve.metrics.daemon_totals import OTHER, DaemonTotals, Process
from gputop.serve.metrics.idle import STEP_BOUNDS, Idle
from probes import api
from probes.proc.belonging import KEYS
from probes.samples import ProcessData

BOUNDS = tuple(range(10, 35, 2))  # powers of two, ns: from 1 µs to 17 s; histograms' buckets end there
_SECOND = 1e9
# a process's figures by their names in frames: metric, help, divisor
FIGURES = {
    "rss_bytes": ("gputop_process_resident_memory_bytes", "Resident memory of the process.", 1),
    "gpu_memory_bytes": ("gputop_process_gpu_memory_bytes", "GPU memory of the process, by NVML.", 1),
    "sm_percent": (
        "gputop_process_gpu_sm_ratio",
        "Time in which a kernel of the process ran, by NVML; 1 is one GPU all the time.",
        100,
    ),
    "memory_percent": (
        "gputop_process_gpu_memory_access_ratio",
        "Time in which the process read or wrote GPU memory, by NVML.",
        100,
    ),
}


@dataclass(frozen=True, slots=True)
class CurrentFigures:
    """The figures beside the counts."""

    lost: dict[str, int]  # events by kind
    own_cpu_s: float  # CPU time of the daemon
    own_bytes: int  # its memory
    probes: int  # traced functions, of all libraries
    kept: int  # sessions kept since the start
    not_kept: int  # sessions not kept because of the limits
    clients: int  # clients of the socket
    budget_step: int  # step of reduced observation; 0: none
    uuids: dict[int, str]  # UUIDs of GPUs by index
    processes: dict[int, ProcessData]  # facts of the observed processes
    build: dict[str, str]  # labels of ``gputop_build_info``
    sent: tuple[int, int] | None = None  # successful and failed exports by OTLP; None without OTLP
    # by process, its known figures, by their names in frames (``FIGURES``)
    figures: dict[int, dict[str, int]] = field(default_factory=dict)


class GputopCollector(Collector):
    """Builds the families for each scrape, from counts of other threads."""

    def __init__(self, totals: DaemonTotals, idle: Idle, now: Callable[[], CurrentFigures]) -> None:
        self._totals, self._idle, self._now = totals, idle, now

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering needs no scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        now = self._now()
        with self._totals.held:
            yield from list(_of_calls(self._totals.processes))
            yield from list(_of_threads(self._totals.processes))
        with self._idle.held:
            yield from list(_of_gpus(self._idle, now.uuids))
            yield _of_steps(self._idle)
        yield from _of_gputop(now)
        yield _of_processes(now)
        yield from families_of_figures(now)


def _name(pid: int) -> str:
    return "other" if pid == OTHER else str(pid)


def _bound(ns: int) -> str:
    """The upper end of a bucket, in seconds."""
    return repr(ns / _SECOND)


def _counter(name: str, about: str, *labels: str) -> CounterMetricFamily:
    unit = name.rpartition("_")[2]  # its name ends with it
    return CounterMetricFamily(name, about, labels=labels, unit=unit if unit in ("seconds", "bytes") else "")


def _of_calls(processes: dict[int, Process]) -> Iterator[Metric]:
    calls = _counter("gputop_cuda_calls", "CUDA calls, without nested ones.", "pid", "api", "layer")
    spent = _counter(
        "gputop_cuda_call_seconds", "Seconds spent in outermost CUDA calls.", "pid", "api", "layer"
    )
    errors = _counter("gputop_cuda_call_errors", "CUDA calls that failed.", "pid", "api", "layer")
    copied = _counter("gputop_cuda_copy_bytes", "Bytes requested by copies.", "pid", "direction")
    allocated = _counter("gputop_cuda_alloc_bytes", "Bytes of GPU memory that were allocated.", "pid")
    lengths = HistogramMetricFamily(
        "gputop_cuda_call_duration_seconds",
        "Duration of CUDA calls.",
        labels=("pid", "class"),
        unit="seconds",
    )
    for pid, row in sorted(processes.items()):
        name = _name(pid)
        for op, call in sorted(row.calls.items()):
            labels = (name, api.BY_OP[op].name, api.BY_OP[op].layer)
            calls.add_metric(labels, call.count)
            spent.add_metric(labels, call.sum_ns / _SECOND)
            errors.add_metric(labels, call.errors)
        for kind, (counts, sum_ns) in sorted(row.lengths.items()):
            below = np.cumsum(counts)
            buckets = [(_bound(1 << power), float(below[power - 1])) for power in BOUNDS]
            buckets.append(("+Inf", float(below[EXPONENTS - 1])))
            lengths.add_metric((name, kind), buckets=buckets, sum_value=sum_ns / _SECOND)
        for way, size in sorted(row.copied.items()):
            copied.add_metric((name, way), size)
        if row.allocated:
            allocated.add_metric((name,), row.allocated)
    yield from (calls, spent, errors, lengths, copied, allocated)


def _of_threads(processes: dict[int, Process]) -> Iterator[Metric]:
    switches = _counter(
        "gputop_context_switches", "Context switches of the process's threads.", "pid", "type"
    )
    queued = _counter(
        "gputop_runqueue_seconds", "Seconds in which threads of the process waited for a CPU.", "pid"
    )
    off = _counter("gputop_offcpu_seconds", "Seconds in which threads of the process were blocked.", "pid")
    for pid, row in sorted(processes.items()):
        name, threads = _name(pid), row.threads
        switches.add_metric((name, "voluntary"), threads.voluntary)
        switches.add_metric((name, "involuntary"), threads.involuntary)
        queued.add_metric((name,), threads.runnable / _SECOND)
        off.add_metric((name,), threads.blocked / _SECOND)
    yield from (switches, queued, off)


def _of_gpus(idle: Idle, uuids: dict[int, str]) -> Iterator[Metric]:
    labels = ("gpu", "UUID")
    seen = _counter("gputop_gpu_observed_seconds", "Seconds of GPU time that were explained.", *labels)
    least = _counter("gputop_gpu_idle_seconds", "Seconds in which the GPU was provably idle.", *labels)
    most = _counter("gputop_gpu_idle_upper_seconds", "Upper bound of the GPU's idle seconds.", *labels)
    for label, row in sorted(idle.gpus.items()):
        index = label.removeprefix("GPU ")
        values = (index, uuids.get(int(index), "") if index.isdecimal() else "")
        seen.add_metric(values, row.observed / _SECOND)
        least.add_metric(values, row.idle / _SECOND)
        most.add_metric(values, row.idle_upper / _SECOND)
    causes = _counter(
        "gputop_idle_cause_seconds", "Lower bound of GPU idle seconds by cause.", "pid", "cause", "level"
    )
    for (pid, cause, level), ns in sorted(idle.causes.items()):
        causes.add_metric((str(pid), cause, level), ns / _SECOND)
    yield from (seen, least, most, causes)


def _of_steps(idle: Idle) -> Metric:
    steps = HistogramMetricFamily(
        "gputop_step_seconds", "Duration of steps.", labels=("pid",), unit="seconds"
    )
    for pid, row in sorted(idle.steps.items()):
        below = np.cumsum(row.counts).tolist()
        bounds = [*(_bound(bound) for bound in STEP_BOUNDS), "+Inf"]
        steps.add_metric(
            (str(pid),),
            buckets=list(zip(bounds, map(float, below), strict=True)),
            sum_value=row.sum_ns / _SECOND,
        )
    return steps


def _of_gputop(now: CurrentFigures) -> Iterator[Metric]:
    lost = _counter("gputop_lost_events", "Events lost.", "kind")
    for kind, count in sorted(now.lost.items()):
        lost.add_metric((kind,), count)
    yield lost
    own = _counter("gputop_own_cpu_seconds", "CPU seconds of gputop itself.")
    own.add_metric((), now.own_cpu_s)
    yield own
    kept = _counter("gputop_sessions", "Recordings triggered, kept or not.", "kept")
    kept.add_metric(("yes",), now.kept)
    kept.add_metric(("no",), now.not_kept)
    yield kept
    if now.sent is not None:
        sent = _counter("gputop_otlp_exports", "Exports of metrics over OTLP.", "sent")
        for word, count in zip(("yes", "no"), now.sent, strict=True):
            sent.add_metric((word,), count)
        yield sent
    for name, about, value in (
        ("gputop_own_memory_bytes", "Resident memory of gputop itself.", now.own_bytes),
        ("gputop_probes_active", "Functions traced, in all libraries.", now.probes),
        ("gputop_clients", "Clients of the daemon's socket.", now.clients),
        (
            "gputop_budget_step",
            "Step of reduced observation to stay within the budget; 0: none.",
            now.budget_step,
        ),
    ):
        yield GaugeMetricFamily(name, about, value=value)
    build = InfoMetricFamily("gputop_build", "Version of gputop, kernel and driver.")
    build.add_metric((), now.build)
    yield build


def _of_processes(now: CurrentFigures) -> Metric:
    labels = ("name", "user", "container", *KEYS)
    info = InfoMetricFamily("gputop_process", "Process metadata.", labels=("pid",))
    for pid, facts in sorted(now.processes.items()):
        data: dict[str, Any] = dict(facts)
        info.add_metric(
            (str(pid),), {key: str(data[key]) for key in labels if data.get(key) not in (None, "")}
        )
    return info


def families_of_figures(now: CurrentFigures) -> Iterator[Metric]:
    """Gauges of processes, each for the processes whose figure is known."""
    for key, (name, about, whole) in FIGURES.items():
        gauge = GaugeMetricFamily(name, about, labels=("pid",))
        for pid, figures in sorted(now.figures.items()):
            if key in figures:
                gauge.add_metric((str(pid),), figures[key] / whole)
        yield gauge
