"""The machine in one line, as far as it fits: CPU, load, memory, pressure, disks, network."""

from __future__ import annotations

from gputop.engine.host_figures import HostRow
from gputop.format import NS_PER_S, SPARKS, SPARKS_ASCII, format_bytes, format_percent
from gputop.ui.model.listing.process_table import format_run
from gputop.ui.model.look import Glyphs, Line, Span, line_width, merged

_MOST_CORES = 64  # with a sign each


def host_spans(host: HostRow, width: int, glyphs: Glyphs) -> Line:
    """Return the figures by importance, as many as fit."""
    out: list[Span] = []
    for part in _parts(host, glyphs):
        wanted = [*([("  ", "")] if out else [(" ", "")]), *part]
        if line_width(out) + line_width(wanted) <= width:
            out += wanted
    return merged(out)


def _parts(host: HostRow, glyphs: Glyphs) -> list[list[Span]]:
    parts: list[list[Span]] = []
    if host.cpu_percent is not None:
        parts.append([("CPU ", "dim"), (f"{format_percent(host.cpu_percent)}%", "")])
    if host.load:
        parts.append([("load ", "dim"), (f"{host.load[0]:.1f}", "")])
    if host.memory_total_bytes and host.memory_available_bytes is not None:
        used = format_bytes(host.memory_total_bytes - host.memory_available_bytes)
        parts.append([("mem ", "dim"), (f"{used}/{format_bytes(host.memory_total_bytes)}", "")])
    pressure = (
        ("cpu", host.pressure_cpu_percent),
        ("mem", host.pressure_memory_percent),
        ("io", host.pressure_io_percent),
    )
    known = [(what, format_percent(value)) for what, value in pressure if value is not None]
    if known:
        some = " ".join(f"{what} {percent}" for what, percent in known if percent != "0") or "0"
        parts.append([("pressure ", "dim"), (f"{some} %", "")])
    if host.received_bytes_per_second is not None:
        received, sent = map(format_bytes, (host.received_bytes_per_second, host.sent_bytes_per_second))
        down, up = ("rx ", "tx ") if glyphs.ascii else ("↓", "↑")
        parts.append([("net ", "dim"), (f"{down}{received} {up}{sent}/s", "")])
    if 1 < len(host.cores_percent) <= _MOST_CORES:
        parts.append([(_cores(host.cores_percent, glyphs), "")])
    if host.swap_total_bytes and host.swap_free_bytes is not None:
        used = format_bytes(host.swap_total_bytes - host.swap_free_bytes)
        parts.append([("swap ", "dim"), (f"{used}/{format_bytes(host.swap_total_bytes)}", "")])
    if host.disk_read_bytes_per_second is not None:
        rates = _rates(host.disk_read_bytes_per_second, host.disk_write_bytes_per_second)
        parts.append([("disk r/w ", "dim"), (rates, "")])
    if host.processes is not None:
        parts.append([("processes ", "dim"), (f"{host.processes}", "")])
    if model := cpu_text(host, glyphs):
        parts.append([(model, "")])
    if len(host.load) > 1:
        more = " ".join(f"{load:.1f}" for load in host.load[1:])
        parts.append([("load 5, 15 min ", "dim"), (more, "")])
    if host.memory_cached_bytes is not None:
        parts.append([("cached ", "dim"), (format_bytes(host.memory_cached_bytes), "")])
    if host.uptime_s is not None:
        parts.append([("up ", "dim"), (format_run(host.uptime_s * NS_PER_S), "")])
    if host.name:
        parts.append([("on ", "dim"), (glyphs.shown(host.name), "")])
    return parts


def cpu_text(host: HostRow, glyphs: Glyphs) -> str:
    """Return the known ones of the CPUs' model, clock and temperature: ``EPYC 9654 3.7GHz 61°C``."""
    parts = [glyphs.shown(host.cpu_model)] if host.cpu_model else []
    if host.cpu_mhz is not None:
        parts.append(f"{host.cpu_mhz / 1000:.1f}GHz")
    if host.cpu_temperature_celsius is not None:
        parts.append(f"{host.cpu_temperature_celsius}{'C' if glyphs.ascii else '°C'}")
    return " ".join(parts)


def _rates(one: int | None, other: int | None) -> str:
    return f"{format_bytes(one)}/{format_bytes(other)}/s"


def _cores(percent: tuple[float, ...], glyphs: Glyphs) -> str:
    """Return a sign for each CPU's utilisation."""
    signs = SPARKS_ASCII if glyphs.ascii else SPARKS
    return "".join(signs[min(int(one * len(signs) / 100), len(signs) - 1)] for one in percent)
