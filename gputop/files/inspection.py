"""The contents of a session file: machine, GPUs, probes, cost, losses, gaps, sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from gputop.api.holes import Stretches, holes_of, unkept_of
from gputop.api.reading import understood
from gputop.api.session import Session, reader_of
from gputop.documents.inspect_schema import (
    CostJson,
    GapJson,
    InspectDocument,
    InspectedGpuJson,
    LibraryJson,
    PartJson,
)
from gputop.engine.facts import Facts, lost_before
from gputop.engine.frame import stacks_recorded
from gputop.engine.gpus.nvml_rows import of_all_hosts
from gputop.errors import SessionUnreadableError
from gputop.format import escape_text, format_bytes, format_clock, format_count, format_ns
from probes.samples import listed_gpus, lost_until, sample_data, section
from probes.source import GPUS, MARK, Sample
from replay.items import ItemReader
from replay.size_breakdown import Census, census

SCHEMA: Final = "gputop.inspect/1"
_GAP: Final = 3.0  # marks this many times further apart than the median enclose a gap
_LISTED_NS: Final = 3_000_000_000  # longest distance of NVML's samples
_NO_TIME: Final = (1 << 63) - 1


def inspect(session: Session) -> InspectDocument:
    """Return the document of ``gputop inspect --json``; reads facts and marks, not records.

    Raises:
        GputopError: The file cannot be read or understood.
    """
    reader = reader_of(session)
    with understood(session.path):
        try:
            sizes = census(session.path)
        except OSError as error:
            raise SessionUnreadableError(f"{session.path} cannot be read: {error.strerror}") from error
        marks = reader.samples(MARK)
        facts, gpus = _facts(reader)
        header, machine = session.header, section(session.header, "machine")
        clock = header.get("clock", {})
        realtime = clock.get("realtime_ns")
        return {
            "schema": SCHEMA,
            "format": f"{header.get('major')}.{header.get('minor')}",
            "recorder": _text(header.get("gputop")),
            "source": str(header.get("source", "gputop")),
            "start_realtime_ns": None
            if realtime is None
            else int(realtime) + session.start_ns - int(clock.get("monotonic_ns", session.start_ns)),
            "duration_ns": session.duration_ns,
            "frames": len(session.moments_ns),
            "private": bool(header.get("private")),
            "cut": header.get("cut") is not None,
            "machine": {
                "host": _text(machine.get("host")),
                "kernel": _text(machine.get("kernel")),
                "architecture": _text(machine.get("architecture")),
                "cpus": _number(machine.get("cpus")),
                "memory_bytes": _number(machine.get("memory_bytes")),
            },
            "driver": _text(header.get("driver")),
            "gpus": gpus,
            "probes": {
                "calls_observed": session.calls_observed,
                "lines": stacks_recorded(header),
                "rate_hz": float(header["rate_hz"]) if "rate_hz" in header else None,
                "ring_bytes": _number(header.get("ring_bytes")),
                "libraries": _libraries(header),
            },
            "processes": sum(bool(row.get("watched")) for row in facts.processes.values()),
            "cost": _cost(marks),
            "lost": _lost(header, marks),
            "gaps": _gaps(session),
            "parts": _parts(session),
            "not_recorded": _stretches(session, holes_of(session)),
            "not_kept": _stretches(session, unkept_of(session)),
            "closed": sizes.closed,
            "sizes": _sizes(sizes),
            "notes": list(facts.notes()),
            "problems": [*session.problems, *facts.problems(None)],
        }


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _facts(reader: ItemReader) -> tuple[Facts, list[InspectedGpuJson]]:
    """Return the facts at the end, and the GPUs listed last."""
    facts = Facts()
    listed: Sample | None = None
    last = len(reader.marks) - 1
    for item in reader.items_until(last, _NO_TIME, int(reader.marks[last]) - _LISTED_NS):
        if isinstance(item, Sample):
            facts.consume(item)
            if listed_gpus(item):
                listed = of_all_hosts(listed, item)
    listed = listed or reader.newest(GPUS)  # a merged recording whose last part has none
    return facts, [
        {
            "index": int(row["index"]),
            "name": str(row.get("name", "")),
            "uuid": str(row.get("uuid", "")),
            "memory_total_bytes": _number(row.get("memory_total_bytes")),
        }
        for row in listed_gpus(listed)
    ]


def _libraries(header: Mapping[str, Any]) -> list[LibraryJson]:
    return [
        {"layer": str(row["layer"]), "build_id": str(row.get("build_id", "")), "symbols": int(row["symbols"])}
        for row in header.get("libraries", ())
    ]


def _cost(marks: Sequence[Sample]) -> CostJson:
    mark_data = [sample_data(mark, MARK) or {} for mark in marks]
    cpu = [float(data["own_cpu_percent"]) for data in mark_data if data.get("own_cpu_percent") is not None]
    rss = [int(data["own_rss_bytes"]) for data in mark_data if data.get("own_rss_bytes") is not None]
    return {
        "own_cpu_percent_mean": round(sum(cpu) / len(cpu), 2) if cpu else None,
        "own_cpu_percent_max": max(cpu, default=None),
        "own_rss_bytes_max": max(rss, default=None),
    }


def _lost(header: Mapping[str, Any], marks: Sequence[Sample]) -> Any:
    before = lost_before(header)
    counted = lost_until(marks[-1] if marks else None)
    kinds = {kind: max(count - before.get(kind, 0), 0) for kind, count in counted.items()}
    return {"events": sum(kinds.values()), "by_kind": kinds}


def _gaps(session: Session) -> list[GapJson]:
    moments = np.array(session.moments_ns, np.int64)
    apart = np.diff(moments)
    if not len(apart):
        return []
    wide = np.flatnonzero(apart > _GAP * float(np.median(apart)))
    return [{"start_ns": int(moments[row]), "end_ns": int(moments[row + 1])} for row in wide.tolist()]


def _stretches(session: Session, parts: Stretches) -> list[GapJson]:
    start = session.start_ns
    return [{"start_ns": low - start, "end_ns": high - start} for low, high in parts]


def _parts(session: Session) -> list[PartJson]:
    """The recordings that a merged file consists of, else none."""
    return [
        {
            "path": _text(row.get("path")),
            "host": _text(row.get("host")),
            "begin_ns": int(row["begin_ns"]) - session.start_ns,
            "end_ns": int(row["end_ns"]) - session.start_ns,
            "clock": str(row["clock"]),
            "later_ns": int(row["later_ns"]),
            "drift_ppm": float(row.get("drift_ppm", 0)),
            "error_ns": _number(row.get("error_ns")),
            "pids_from": int(row.get("pids_from", 0)),
            "gpus_from": int(row.get("gpus_from", 0)),
        }
        for row in section(session.header, "merged").get("parts", ())
    ]


def _sizes(sizes: Census) -> Any:
    each = sizes.bytes_a_record
    return {
        "size_bytes": sizes.size_bytes,
        "other_bytes": sizes.other_bytes,
        "bytes_per_record": None if each is None else round(each, 2),
        "kinds": [
            {"kind": one.kind, "chunks": one.chunks, "items": one.items, "size_bytes": one.size_bytes}
            for one in sizes.kinds
        ],
    }


def inspection_to_text(found: InspectDocument) -> str:
    machine, probes, cost, sizes = found["machine"], found["probes"], found["cost"], found["sizes"]
    lines = [
        f"format      {found['format']}, by {_or(found['recorder'])}, source {found['source']}"
        + (", private" if found["private"] else "")
        + (", cut from a longer one" if found["cut"] else ""),
        f"time        {format_ns(found['duration_ns'])}, {found['frames']} frames" + _began(found),
        f"machine     {_or(machine['host'])}, Linux {_or(machine['kernel'])}, "
        f"{_or(machine['architecture'])}, {_or(machine['cpus'])} CPUs, "
        f"{format_bytes(machine['memory_bytes'])}",
        f"driver      {_or(found['driver'])}",
    ]
    lines += [
        f"GPU {gpu['index']:<7} {gpu['name']}, {format_bytes(gpu['memory_total_bytes'])}, {gpu['uuid']}"
        for gpu in found["gpus"]
    ] or ["GPU         none is listed"]
    functions = sum(one["symbols"] for one in probes["libraries"])
    lines.append(f"processes   {found['processes']} watched")
    lines.append(
        f"probes      {functions} functions of {len(probes['libraries'])} libraries; "
        f"lines: {_or(probes['lines'])}; {_or(probes['rate_hz'])} frames a second"
        if probes["calls_observed"]
        else "probes      no calls: recorded without eBPF"
    )
    mean, rss = cost["own_cpu_percent_mean"], format_bytes(cost["own_rss_bytes_max"])
    lines.append(
        "cost        unknown"
        if mean is None
        else f"cost        {mean:.1f} % of a CPU (at most {cost['own_cpu_percent_max']:.1f} %), {rss}"
    )
    kinds = ", ".join(f"{kind} {count}" for kind, count in found["lost"]["by_kind"].items() if count)
    lines.append(f"lost        {found['lost']['events']} events" + (f" ({kinds})" if kinds else ""))
    lines += [
        f"gap         from {gap['start_ns'] / 1e9:.3f} to {gap['end_ns'] / 1e9:.3f} s: nothing is recorded"
        for gap in found["gaps"]
    ]
    lines += [_part(number, part) for number, part in enumerate(found["parts"], 1)]
    lines += [
        f"missing     from {gap['start_ns'] / 1e9:.3f} to {gap['end_ns'] / 1e9:.3f} s: "
        "not recorded by all parts"
        for gap in found["not_recorded"]
    ]
    lines += [
        f"not kept    from {gap['start_ns'] / 1e9:.3f} to {gap['end_ns'] / 1e9:.3f} s: "
        "sums and histograms only"
        for gap in found["not_kept"]
    ]
    each = sizes["bytes_per_record"]
    lines.append(
        f"size        {format_bytes(sizes['size_bytes'])}"
        + ("" if each is None else f", {each:.1f} bytes a record")
        + ("" if found["closed"] else "; the recorder did not end normally")
    )
    lines += [
        f"  {one['kind']:<10}{format_bytes(one['size_bytes']):>7} {format_count(one['items']):>6}"
        for one in sizes["kinds"]
    ]
    lines += [f"! {text}" for text in found["problems"]]
    return "\n".join(escape_text(line) for line in lines) + "\n"


def _part(number: int, part: PartJson) -> str:
    error = "not known" if part["error_ns"] is None else f"at most {format_ns(part['error_ns'])}"
    how = "exact" if part["clock"] == "same" else f"moved by {part['later_ns'] / 1e9:+.6f} s"
    how += f", drift {part['drift_ppm']:+.2f} ppm" if part["drift_ppm"] else ""
    how += f", error {error}" if part["clock"] != "same" else ""
    return (
        f"part {number:<7}{_or(part['path'])}, {_or(part['host'])}, from {part['begin_ns'] / 1e9:.3f} to "
        f"{part['end_ns'] / 1e9:.3f} s, clock {how}"
        + (f", processes from {part['pids_from']}" if part["pids_from"] else "")
    )


def _began(found: InspectDocument) -> str:
    start = found["start_realtime_ns"]
    if start is None:
        return ""
    day = np.datetime64(start, "ns").astype("datetime64[D]")
    return f", began {day} {format_clock(start, 0)} UTC"


def _or(value: Any) -> str:
    return "not known" if value is None else str(value)
