"""The figures of a GPU as text, and their labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gputop.engine.frame import GpuRow
from gputop.engine.gpus import nvml_rows
from gputop.format import NS_PER_S, escape_text, format_bytes, format_ns, format_percent, format_watts
from gputop.ui.model.look import Glyphs, Span

STALE_NS = 2 * NS_PER_S
NA = "n/a"
IDLE_NS, MUCH_BYTES = 60 * NS_PER_S, 1 << 30  # of an idle process that is reported for holding memory


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that NVML reports."""

    label: str  # its label
    keys: tuple[str, ...]  # the fields of ``GpuRow`` that it shows
    text: Callable[[GpuRow, Glyphs], str]  # returns its text, ``n/a`` for unknown


def _value(value: float | None, unit: str) -> str:
    return NA if value is None else f"{format_percent(value)}{unit}"


def percent_text(value: float | None) -> str:
    """Return a share: ``38%``, ``0.4%``."""
    return _value(value, "%")


def rate_text(size: int | None) -> str:
    """Return a throughput: ``1.5G/s``."""
    return NA if size is None else f"{format_bytes(size)}/s"


def memory_text(gpu: GpuRow) -> str:
    """Return used and total memory: ``61.0G/80.0G``."""
    return both_ways(gpu.memory_used_bytes, gpu.memory_total_bytes)


def memory_share_text(gpu: GpuRow) -> str:
    """Return used memory in percent: ``76``."""
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return NA
    return format_percent(100 * gpu.memory_used_bytes / gpu.memory_total_bytes)


def power_text(gpu: GpuRow) -> str:
    """Return the power and its limit: ``212/700W``."""
    if gpu.power_milliwatts is None:
        return NA
    if gpu.power_limit_milliwatts is None:
        return format_watts(gpu.power_milliwatts)
    return f"{gpu.power_milliwatts / 1000:.0f}/{format_watts(gpu.power_limit_milliwatts)}"


def temperature_text(gpu: GpuRow, glyphs: Glyphs) -> str:
    """Return the temperature: ``34°C``."""
    return _value(gpu.temperature_celsius, "C" if glyphs.ascii else "°C")


def clock_text(gpu: GpuRow, glyphs: Glyphs) -> str:
    """Return the SM clock, with a warning sign while it is throttled: ``1755MHz``."""
    if gpu.sm_clock_mhz is None:
        return NA
    sign = glyphs.warning if slowed(gpu) else ""
    return f"{sign}{gpu.sm_clock_mhz}MHz"


def slowed(gpu: GpuRow) -> bool:
    """True if the clocks are throttled by heat or by the power supply."""
    return nvml_rows.held_down(gpu.clock_event_reasons)


def held_text(gpu: GpuRow) -> str:
    """Return the active limits of the clocks: ``power limit, temperature``, or ``none``."""
    if gpu.clock_events is None:
        return NA
    return escape_text(", ".join(gpu.clock_events)) or "none"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def both_ways(
    received: int | None, sent: int | None, text: Callable[[int | None], str] = format_bytes
) -> str:
    """Return throughput to and from the GPU, or another pair of figures, without unit: ``1.5G/300M``."""
    return NA if received is None and sent is None else f"{text(received)}/{text(sent)}"


def ecc_text(gpu: GpuRow) -> str:
    """Return corrected and uncorrected memory errors: ``3/0``."""
    return both_ways(gpu.ecc_corrected_errors, gpu.ecc_uncorrected_errors, _count)


def video_text(gpu: GpuRow) -> str:
    """Return the utilisation of encoder and decoder: ``20/0``."""
    return both_ways(gpu.encoder_percent, gpu.decoder_percent, _count)


def _used_text(gpu: GpuRow, _: Glyphs) -> str:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    share = f" {100 * used / total:.0f}%" if used is not None and total else ""
    return memory_text(gpu) + share


def _clock_of(now: int | None, most: int | None) -> str:
    if now is None:
        return NA
    return f"{now} of {most} MHz" if most is not None else f"{now} MHz"


def _link_text(gpu: GpuRow, _: Glyphs) -> str:
    """Return generation and lanes, with their maxima if these differ: ``gen 4/5 x16``."""
    if gpu.pcie_generation is None or gpu.pcie_width is None:
        return NA
    return (
        f"gen {_of(gpu.pcie_generation, gpu.pcie_generation_max)} x{_of(gpu.pcie_width, gpu.pcie_width_max)}"
    )


def _of(now: int, most: int | None) -> str:
    return f"{now}/{most}" if most is not None and most != now else str(now)


def _flag(label: str, key: str) -> Figure:
    words = {None: NA, True: "on", False: "off"}
    return Figure(label, (key,), lambda gpu, _: words[getattr(gpu, key)])


def _percent(label: str, key: str) -> Figure:
    return Figure(label, (key,), lambda gpu, _: percent_text(getattr(gpu, key)))


def _rate(label: str, key: str) -> Figure:
    return Figure(label, (key,), lambda gpu, _: rate_text(getattr(gpu, key)))


def _number(label: str, key: str, form: str = "{}") -> Figure:
    return Figure(
        label, (key,), lambda gpu, _: NA if getattr(gpu, key) is None else form.format(getattr(gpu, key))
    )


SECTIONS: tuple[tuple[str, tuple[Figure, ...]], ...] = (
    (
        "Activity",
        (
            _percent("utilisation", "utilization_percent"),
            _percent("SMs active", "sm_active_percent"),
            _percent("SM occupancy", "sm_occupancy_percent"),
            _percent("tensor cores", "tensor_active_percent"),
            _percent("DRAM bandwidth", "dram_bandwidth_percent"),
            _percent("memory busy", "memory_utilization_percent"),
            _percent("encoder", "encoder_percent"),
            _percent("decoder", "decoder_percent"),
        ),
    ),
    (
        "Memory",
        (
            Figure("used", ("memory_used_bytes", "memory_total_bytes"), _used_text),
            _number("ECC corrected", "ecc_corrected_errors"),
            _number("ECC uncorrected", "ecc_uncorrected_errors"),
            _number("ECC corr. ever", "ecc_corrected_total"),
            _number("ECC uncorr. ever", "ecc_uncorrected_total"),
        ),
    ),
    (
        "Power",
        (
            Figure(
                "power / limit", ("power_milliwatts", "power_limit_milliwatts"), lambda g, _: power_text(g)
            ),
            Figure("temperature", ("temperature_celsius",), temperature_text),
            _percent("fan", "fan_percent"),
            _number("state", "performance_state", "P{}"),
            Figure(
                "SM clock",
                ("sm_clock_mhz", "sm_clock_max_mhz"),
                lambda g, _: _clock_of(g.sm_clock_mhz, g.sm_clock_max_mhz),
            ),
            Figure(
                "memory clock",
                ("memory_clock_mhz", "memory_clock_max_mhz"),
                lambda g, _: _clock_of(g.memory_clock_mhz, g.memory_clock_max_mhz),
            ),
            Figure("clock limit", ("clock_event_reasons",), lambda g, _: held_text(g)),
        ),
    ),
    (
        "Modes",
        (
            Figure("compute mode", ("compute_mode",), lambda g, _: escape_text(g.compute_mode or NA)),
            _flag("persistence", "persistence_enabled"),
            _flag("MIG", "mig_enabled"),
        ),
    ),
    (
        "Links",
        (
            _rate("PCIe received", "pcie_rx_bytes_per_second"),
            _rate("PCIe sent", "pcie_tx_bytes_per_second"),
            Figure(
                "PCIe link",
                ("pcie_generation", "pcie_width", "pcie_generation_max", "pcie_width_max"),
                _link_text,
            ),
            _rate("NVLink received", "nvlink_rx_bytes_per_second"),
            _rate("NVLink sent", "nvlink_tx_bytes_per_second"),
        ),
    ),
)
_LABELS = {key: figure.label for _, figures in SECTIONS for figure in figures for key in figure.keys} | {
    "mig": "MIG",
    "processes": "processes",
    "process_utilization": "use by process",
    "pci_bus_id": "PCI address",
}


def trouble(gpu: GpuRow, glyphs: Glyphs) -> Span | None:
    """Return why a GPU has no figures: it is lost, or NVML does not answer; else None."""
    if gpu.lost:
        return f"{glyphs.warning} {escape_text(gpu.lost)}", "alert"
    if gpu.age_ns >= STALE_NS:
        return f"? no sample for {format_ns(gpu.age_ns)}", "unknown"
    return None


def reasons(gpu: GpuRow) -> list[str]:
    """Return a sentence for each reason of missing figures: ``n/a: fan, encoder: not offered …``."""
    if gpu.lost:
        return [f"{NA}: all figures: {escape_text(gpu.lost)}"]
    by_reason: dict[str, list[str]] = {}
    for key, reason in gpu.unavailable:
        label = _LABELS.get(key, escape_text(key))
        labels = by_reason.setdefault(reason, [])
        if label not in labels:
            labels.append(label)
    if len(by_reason) == 1 and gpu.utilization_percent is None and gpu.memory_used_bytes is None:
        labels = ["all figures"]
        by_reason = dict.fromkeys(by_reason, labels)
    return [f"{NA}: {', '.join(labels)}: {escape_text(reason)}" for reason, labels in by_reason.items()]


def idle_holders(gpu: GpuRow, glyphs: Glyphs) -> list[str]:
    """Return a sentence for each process that holds much memory without submitting work."""
    parts = []
    for row in gpu.processes or ():
        long = row.idle_ns is not None and row.idle_ns >= IDLE_NS
        if long and (row.memory_bytes or 0) >= MUCH_BYTES:
            who = f"{row.user}'s {row.name}" if row.user and row.name else row.name or "process"
            named = glyphs.shown(f"{who} ({row.pid})")
            size = format_bytes(row.memory_bytes)
            parts.append(
                f"{named} holds {size} and has submitted no work to it for at least {format_ns(row.idle_ns)}"
            )
    return parts
