"""Since when each process on a GPU has done nothing there, as far as NVML was queried."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from probes.nvml import nvml_processes
from probes.nvml.nvml_errors import NOT_QUERIED, NOT_WITH_MIG, REFUSALS, RefusalError, is_loss, reason_of
from probes.nvml.nvml_gpm import SHARES, GpmMeter
from probes.nvml.nvml_mig import MigReader, text_of
from probes.nvml.nvml_samples import UtilizationSamples

_WORK = ("sm_percent", "memory_percent", "encoder_percent", "decoder_percent")
Use = Mapping[str, int | None]


class IdleSince:
    """Remembers when each process was seen at work last; before the first look nothing is known."""

    def __init__(self) -> None:
        self._since: dict[int, int] = {}

    def consume(self, pids: Iterable[int], use: Mapping[int, Use] | None, now_ns: int) -> dict[int, int]:
        """Process -> start of its idle time, CLOCK_MONOTONIC; without those that work.

        Args:
            pids: All processes with a context on the GPU.
            use: Those that worked in the last second; None where NVML does not report it.
            now_ns: The time of the sample.
        """
        if use is None:
            self._since = {}
            return {}
        idle = {pid for pid in pids if pid not in use or _nothing(use[pid])}
        self._since = {pid: self._since.get(pid, now_ns) for pid in idle}
        return dict(self._since)


def _nothing(use: Use) -> bool:
    """True if all shares are known and zero."""
    return all(use.get(key) == 0 for key in _WORK)


# One GPU as NVML reports of it: which queries there are, how often, and their outcome.

_EACH_ROUND, _SOON, _SELDOM, _HARDLY_EVER = 0.0, 1.0, 5.0, 60.0  # seconds between two answers
_BLOCKING_S = 2.0  # PCIe throughput: the driver counts for 20 ms, within the call
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024
_ECC = ("ecc_corrected_errors", "ecc_uncorrected_errors", "ecc_corrected_total", "ecc_uncorrected_total")
_PCIE = ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second")
# compute capability -> (CUDA cores, most resident threads) of a multiprocessor: CUDA C++ Programming Guide,
# "Compute Capabilities" (arithmetic instructions, technical specifications)
MULTIPROCESSORS: dict[tuple[int, ...], tuple[int, int]] = {
    (5, 0): (128, 2048), (5, 2): (128, 2048), (5, 3): (128, 2048),
    (6, 0): (64, 2048), (6, 1): (128, 2048), (6, 2): (128, 2048),
    (7, 0): (64, 2048), (7, 2): (64, 2048), (7, 5): (64, 1024),
    (8, 0): (64, 2048), (8, 6): (128, 1536), (8, 7): (128, 1536), (8, 9): (128, 1536),
    (9, 0): (128, 2048), (10, 0): (128, 2048), (10, 3): (128, 2048),
    (12, 0): (128, 1536), (12, 1): (128, 1536),
}  # fmt: skip
_COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive process",
}
_OFF_WITH_MIG = (
    "utilization_percent", "memory_utilization_percent", "encoder_percent", "decoder_percent",
    "process_utilization", "utilization_samples",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NvmlQuery:
    """A query of NVML and its keys."""

    keys: tuple[str, ...]  # of the sample, one a value
    query: Callable[[GpuReader], tuple[Any, ...]]  # reads its figures from NVML
    every_s: float = _EACH_ROUND  # maximal age of an answer; 0: in each round
    at_once: bool = False  # in the first round too: the first sample needs it


class GpuReader:
    """Reads one GPU by NVML. Refused figures are None, with their reason in ``unavailable``."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle: Any = None
        self.mig_on = False
        self.lost = ""  # why it answers nothing any more
        self.gpm = GpmMeter()
        self.mig = MigReader()
        self.use = nvml_processes.ProcessUse()
        self.samples = UtilizationSamples()
        self.counted: dict[str, float | None] = {}  # PCIe by GPM: no query is needed then
        self.links: tuple[int, int, int] | None = None  # when, KiB sent, KiB received
        self._idle = IdleSince()
        self._figures: dict[str, Any] = {key: None for question in QUESTIONS for key in question.keys}
        self._refused: dict[str, str] = dict.fromkeys(self._figures, NOT_QUERIED)
        self._rounds = 0
        self._queried: dict[int, float] = {}  # place of a query -> when it last ran

    def look(self) -> None:
        """Runs each round's queries."""
        self._rounds += 1
        try:
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            self.lost = ""
        except pynvml.NVMLError as error:
            self.lost = reason_of(error)
        for place, question in enumerate(QUESTIONS):
            first = question.at_once and place not in self._queried
            if (question.every_s == _EACH_ROUND or first) and not self.lost:
                self._query(place)

    def due(self, now_s: float) -> list[tuple[float, int]]:
        """The other queries whose answers are too old: (how late in their own periods, place)."""
        if self.lost:
            return []
        late = []
        for place, question in enumerate(QUESTIONS):
            if question.every_s != _EACH_ROUND:
                last_s = self._queried.get(place)
                periods = float("inf") if last_s is None else (now_s - last_s) / question.every_s
                if periods >= 1:
                    late.append((periods, place))
        return late

    def query(self, place: int) -> None:
        """Runs one due query."""
        if not self.lost:
            self._query(place)

    def _query(self, place: int) -> None:
        question = QUESTIONS[place]
        self._queried[place] = time.monotonic()
        try:
            answers = question.query(self)
        except REFUSALS as error:
            if is_loss(error):
                self.lost = reason_of(error)
            self._refuse(question.keys, self._why(question.keys[0], error))
            return
        for key, answer in zip(question.keys, answers, strict=True):
            self._figures[key] = answer
            if answer is None:
                self._refused[key] = "not offered by this GPU"
            else:
                self._refused.pop(key, None)

    def _why(self, key: str, error: Exception) -> str:
        unsupported = isinstance(error, pynvml.NVMLError_NotSupported)
        return NOT_WITH_MIG if unsupported and self.mig_on and key in _OFF_WITH_MIG else reason_of(error)

    def _refuse(self, keys: tuple[str, ...], reason: str) -> None:
        for key in keys:
            self._figures[key] = None
            self._refused[key] = reason

    def row(self) -> dict[str, Any]:
        """The known figures, as in the sample; of a lost GPU only its identity."""
        figures, refused = {**self._figures, **self.counted}, dict(self._refused)
        for key in self.counted:
            refused.pop(key, None)
        if self.lost:
            gone = [key for key in figures if key not in ("name", "uuid", "pci_bus_id")]
            figures |= dict.fromkeys(gone)
            refused |= dict.fromkeys(gone, self.lost)
        row = {"index": self.index, **figures, "unavailable": refused, "lost": self.lost}
        row["name"], row["uuid"] = row["name"] or "GPU", row["uuid"] or ""
        holders = row["clients"] = self._with_idle(row["clients"], row["process_utilization"])
        # [pid, bytes] of those that compute: as the first version of the format has it
        row["processes"] = (
            None
            if holders is None
            else [[one["pid"], one["memory_bytes"]] for one in holders if one["type"] != "G"]
        )
        if holders is None:
            refused["processes"] = refused["clients"]
        return row

    def _with_idle(
        self, clients: list[dict[str, Any]] | None, columns: dict[str, Any] | None
    ) -> list[dict[str, Any]] | None:
        """The processes, with since when each has done nothing (None: it works, or that is not known)."""
        if clients is None:
            return None
        use = None
        if columns is not None:
            rows = zip(columns["pid"], *(columns[key] for key in nvml_processes.USE), strict=True)
            use = {pid: dict(zip(nvml_processes.USE, shares, strict=True)) for pid, *shares in rows}
        since = self._idle.consume([one["pid"] for one in clients], use, time.monotonic_ns())
        return [{**one, "idle_since_ns": since.get(one["pid"])} for one in clients]

    @property
    def complete(self) -> bool:
        """True if every query has run, and those of differences twice."""
        return bool(self.lost) or (self._rounds > 1 and len(self._queried) == len(QUESTIONS))


# -- the queries ---------------------------------------------------------------------------


def _of(read: Callable[[Any], Any]) -> Callable[[GpuReader], tuple[Any, ...]]:
    """A query with one answer that needs the handle alone."""
    return lambda gpu: (read(gpu.handle),)


def _utilization(gpu: GpuReader) -> tuple[int, int]:
    rates = pynvml.nvmlDeviceGetUtilizationRates(gpu.handle)
    return rates.gpu, rates.memory


def _memory(gpu: GpuReader) -> tuple[int, int]:
    info = pynvml.nvmlDeviceGetMemoryInfo(gpu.handle)
    return info.used, info.total


def _clock_event_reasons(handle: Any) -> int:
    """Why the clocks are as they are; drivers before 535 know the function by its former name."""
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (pynvml.NVMLError_FunctionNotFound, AttributeError):
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _activity(gpu: GpuReader) -> tuple[float | None, ...]:
    gpu.counted = {}
    found = gpu.gpm.read(gpu.handle)
    gpu.counted = {key: found[key] for key in _PCIE if found[key] is not None}
    return tuple(found[key] for key in SHARES)


def _links(gpu: GpuReader) -> tuple[int, int]:
    """NVLink counts KiB since the driver's start: the difference to the round before, by its time."""
    fields = (
        (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
        (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
    )
    values = pynvml.nvmlDeviceGetFieldValues(gpu.handle, list(fields))
    now = time.monotonic_ns()
    for value in values:
        if value.nvmlReturn:
            gpu.links = None
            if value.nvmlReturn in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                raise RefusalError("no NVLink on this GPU, or none in use")
            raise pynvml.NVMLError(value.nvmlReturn)
    before, gpu.links = gpu.links, (now, int(values[0].value.ullVal), int(values[1].value.ullVal))
    if before is None:
        raise RefusalError("two readings are needed, there is one so far")
    if gpu.links[1] < before[1] or gpu.links[2] < before[2]:
        raise RefusalError("the counters were reset")
    seconds = max((now - before[0]) / 1e9, 1e-6)
    return tuple(int((gpu.links[at] - before[at]) * _KIB / seconds) for at in (1, 2))  # type: ignore[return-value]


def _process_utilization(gpu: GpuReader) -> tuple[dict[str, Any]]:
    """Columns by process: small in a recording."""
    found = gpu.use.read(gpu.handle)
    columns: dict[str, Any] = {"pid": list(found)}
    for key in nvml_processes.USE:
        columns[key] = [use[key] for use in found.values()]
    return (columns,)


def _mig(gpu: GpuReader) -> tuple[bool, list[dict[str, Any]]]:
    gpu.mig_on, instances = gpu.mig.read(gpu.handle)
    return gpu.mig_on, instances


def _ecc(gpu: GpuReader) -> tuple[int, ...]:
    if not pynvml.nvmlDeviceGetEccMode(gpu.handle)[0]:
        raise RefusalError("error correction (ECC) is switched off")
    return tuple(
        pynvml.nvmlDeviceGetTotalEccErrors(gpu.handle, kind, counter)
        for counter in (pynvml.NVML_VOLATILE_ECC, pynvml.NVML_AGGREGATE_ECC)
        for kind in (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    )


def _multiprocessors(gpu: GpuReader) -> tuple[int, int]:
    capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(gpu.handle))
    if capability not in MULTIPROCESSORS:
        raise RefusalError(f"compute capability {'.'.join(map(str, capability))} is newer than this gputop")
    cores, threads = MULTIPROCESSORS[capability]
    return pynvml.nvmlDeviceGetNumGpuCores(gpu.handle) // cores, threads


def _pcie(key: str, counter: int) -> NvmlQuery:
    def query(gpu: GpuReader) -> tuple[float | None]:
        if key in gpu.counted:
            return (gpu.counted[key],)
        return (_KIB * pynvml.nvmlDeviceGetPcieThroughput(gpu.handle, counter),)

    return NvmlQuery((key,), query, _BLOCKING_S)


def _clock(kind: int) -> Callable[[GpuReader], tuple[int]]:
    return _of(lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, kind))


def _max_clock(kind: int) -> Callable[[GpuReader], tuple[int]]:
    return _of(lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(gpu, kind))


def _identity(read: Callable[[Any], str | bytes]) -> Callable[[GpuReader], tuple[str]]:
    return _of(lambda gpu: text_of(read(gpu)))


def _compute_mode(handle: Any) -> str:
    """Which processes may use the GPU."""
    mode = pynvml.nvmlDeviceGetComputeMode(handle)
    return _COMPUTE_MODES.get(mode, str(mode))


_SM, _MEM, _CELSIUS = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM, pynvml.NVML_TEMPERATURE_GPU
# The order is that of their first time. NVML's units: milliwatts, degrees Celsius, MHz, KB/s.
QUESTIONS: tuple[NvmlQuery, ...] = (
    NvmlQuery(("mig_enabled", "mig"), _mig, _SOON, at_once=True),  # first: it explains refusals of others
    NvmlQuery(("utilization_percent", "memory_utilization_percent"), _utilization),
    NvmlQuery(("utilization_samples",), lambda gpu: (gpu.samples.read(gpu.handle),)),
    NvmlQuery(("memory_used_bytes", "memory_total_bytes"), _memory),
    NvmlQuery(("power_milliwatts",), _of(pynvml.nvmlDeviceGetPowerUsage)),
    NvmlQuery(("temperature_celsius",), _of(lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, _CELSIUS))),
    NvmlQuery(("sm_clock_mhz",), _clock(_SM)),
    NvmlQuery(("memory_clock_mhz",), _clock(_MEM)),
    NvmlQuery(("clock_event_reasons",), _of(_clock_event_reasons)),  # bits of nvmlClocksEventReasons
    NvmlQuery(("clients",), _of(nvml_processes.held)),
    NvmlQuery(("process_utilization",), _process_utilization),
    NvmlQuery(SHARES, _activity),
    NvmlQuery(("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"), _links),
    NvmlQuery(("name",), _identity(pynvml.nvmlDeviceGetName), _HARDLY_EVER, at_once=True),
    NvmlQuery(("uuid",), _identity(pynvml.nvmlDeviceGetUUID), _HARDLY_EVER, at_once=True),
    NvmlQuery(
        ("pci_bus_id",),
        _identity(lambda gpu: pynvml.nvmlDeviceGetPciInfo(gpu).busId),
        _HARDLY_EVER,
        at_once=True,
    ),
    NvmlQuery(
        ("power_limit_milliwatts",), _of(pynvml.nvmlDeviceGetEnforcedPowerLimit), _SELDOM, at_once=True
    ),
    NvmlQuery(("multiprocessors", "multiprocessor_threads"), _multiprocessors, _HARDLY_EVER, at_once=True),
    NvmlQuery(("compute_mode",), _of(_compute_mode), _SELDOM, at_once=True),
    NvmlQuery(
        ("persistence_enabled",),
        _of(lambda gpu: bool(pynvml.nvmlDeviceGetPersistenceMode(gpu))),
        _SELDOM,
        at_once=True,
    ),
    NvmlQuery(("sm_clock_max_mhz",), _max_clock(_SM), _HARDLY_EVER, at_once=True),
    NvmlQuery(("memory_clock_max_mhz",), _max_clock(_MEM), _HARDLY_EVER, at_once=True),
    NvmlQuery(("encoder_percent",), _of(lambda gpu: pynvml.nvmlDeviceGetEncoderUtilization(gpu)[0]), _SOON),
    NvmlQuery(("decoder_percent",), _of(lambda gpu: pynvml.nvmlDeviceGetDecoderUtilization(gpu)[0]), _SOON),
    NvmlQuery(("fan_percent",), _of(pynvml.nvmlDeviceGetFanSpeed), _SOON),
    NvmlQuery(("performance_state",), _of(pynvml.nvmlDeviceGetPerformanceState), _SOON),
    NvmlQuery(("pcie_generation",), _of(pynvml.nvmlDeviceGetCurrPcieLinkGeneration), _SELDOM),
    NvmlQuery(("pcie_generation_max",), _of(pynvml.nvmlDeviceGetMaxPcieLinkGeneration), _HARDLY_EVER),
    NvmlQuery(("pcie_width",), _of(pynvml.nvmlDeviceGetCurrPcieLinkWidth), _SELDOM),
    NvmlQuery(("pcie_width_max",), _of(pynvml.nvmlDeviceGetMaxPcieLinkWidth), _HARDLY_EVER),
    NvmlQuery(_ECC, _ecc, _SELDOM),
    _pcie(_PCIE[0], pynvml.NVML_PCIE_UTIL_TX_BYTES),
    _pcie(_PCIE[1], pynvml.NVML_PCIE_UTIL_RX_BYTES),
)
