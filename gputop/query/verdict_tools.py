"""Tools for results: sessions, their completeness, causal chains, comparisons, GPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from gputop.analysis.answer.report import Report
from gputop.api import functions
from gputop.documents.fields import document
from gputop.engine.frame import GpuRow
from gputop.errors import GputopError
from gputop.query.catalogue import Catalogue, Recording
from gputop.query.reply import OwnText, offset_of, page, whole, with_units

LEVELS = ("proved", "strong", "hint")
_LISTED = 50  # of notes, problems, processes: more have no room


def list_sessions(
    catalogue: Catalogue, query: str | None = None, limit: int = 20, cursor: str | None = None
) -> str:
    """The recordings that can be queried, each with its length, verdict and losses."""
    ids = [id for id in catalogue.ids() if query is None or query.lower() in id.lower()]
    begin, limit = offset_of(cursor), min(max(limit, 1), 50)
    rows: list[Any] = [{"session": id} for id in ids]  # only those of this page are read
    for number in range(begin, min(begin + limit, len(ids))):
        rows[number] = _session(catalogue.get(ids[number]))
    return page({}, "sessions", rows, cursor, limit)


def _session(recording: Recording) -> dict[str, Any]:
    document: dict[str, Any] = {"session": recording.id}
    try:
        found = recording.inspected()
        document |= {
            "host": found["machine"]["host"],
            "duration_s": round(found["duration_ns"] / 1e9, 3),
            "processes": found["processes"],
            "gpus": len(found["gpus"]),
            "lost_events": found["lost"]["events"],
            "source": found["source"],
        }
        document["verdict"] = recording.report().verdict
    except GputopError as error:
        document["problem"] = str(error).replace(recording.path, recording.id)
    return document


def get_check(catalogue: Catalogue, session: str | None = None) -> str:
    """Missing or doubtful data of a recording (failures first), its coverage, machine and GPUs."""
    recording = catalogue.get(session)
    found = recording.inspected()
    report = None
    failures: list[str] = []
    if found["probes"]["calls_observed"]:
        try:
            report = recording.report()
        except GputopError as error:  # the rest is known all the same
            failures.append(str(error).replace(recording.path, recording.id))
    lost = found["lost"]["by_kind"]
    reply = {
        "session": recording.id,
        "failures": [*failures, *_failures(recording, report)],
        "lost_events": found["lost"]["events"],
        "lost_by_kind": [{"kind": kind, "events": count} for kind, count in lost.items() if count],
        "gaps_in_the_recording": with_units(found["gaps"][:_LISTED]),
        "problems": found["problems"][:_LISTED],
        "notes": list((report.notes if report else recording.missing())[:_LISTED]),
        "duration_s": round(found["duration_ns"] / 1e9, 3),
        "machine": found["machine"],
        "driver": found["driver"],
        "gpus": found["gpus"][:_LISTED],
        "calls_observed": found["probes"]["calls_observed"],
        "lines_looked_for": found["probes"]["lines"],
        "own_cost": found["cost"],
    }
    if report is not None:
        reply |= _coverage(report)
    return whole(reply)


def _coverage(report: Report) -> dict[str, Any]:
    return {
        "gpu_idle": {**with_units({"idle_ns": document(report.idle)}), "span_ms": report.span_ns / 1e6},
        "unexplained_ms": report.unexplained_ns / 1e6,
        "unknown_ms": report.unknown_ns / 1e6,
        "small_gaps_ms": report.small_ns / 1e6,
        "outside_the_loop_ms": report.outside_ns / 1e6,
        "lost_events": report.lost_events,
        "coverage": report.coverage,
    }


def _failures(recording: Recording, report: Report | None) -> list[str]:
    found = recording.inspected()
    reasons = []
    if not found["probes"]["calls_observed"]:
        reasons.append("recorded without eBPF: there are no CUDA calls in it and nothing to explain")
    if found["lost"]["events"]:
        reasons.append(f"{found['lost']['events']} records are lost: counts are too low")
    if found["gaps"]:
        reasons.append(f"{len(found['gaps'])} stretches of the recording hold nothing")
    if not found["closed"]:
        reasons.append("the recorder was killed: its last frame may be missing")
    if report is not None and not report.coverage:
        reasons.append("NVML contradicts the proofs: some work is not seen")
    if report is not None and any(not gpu.account.agrees for gpu in report.gpus):
        reasons.append("the sources of the estimate disagree")
    if report is not None and not report.gpus:
        reasons.append("no GPU received observable work")
    return [OwnText(text) for text in reasons]


def get_causal_chains(
    catalogue: Catalogue,
    session: str | None = None,
    from_s: float | None = None,
    to_s: float | None = None,
    pids: list[int] | None = None,
    min_level: Literal["proved", "strong", "hint"] = "hint",
    top_n: int = 5,
    cursor: str | None = None,
) -> str:
    """Why the GPU was idle: verdict, findings with chain, line, evidence, what was ruled out, advice, level;
    and what stays unexplained.
    """
    recording = catalogue.get(session)
    report = recording.report(pids or (), from_s, to_s)
    document: dict[str, Any] = dict(functions.to_json(report))
    sure = LEVELS[: LEVELS.index(min_level) + 1]
    rows = [with_units(one) for one in document["findings"] if one["level"] in sure]
    fixed = {
        "session": recording.id,
        "verdict": document["verdict"],
        "diagnosis": document["diagnosis"],
        **_coverage(report),
        "gpus": with_units(document["gpus"][:_LISTED]),
        "steps": with_units(document["steps"]),
        "what_if": with_units(document["what_if"]),
        "events": with_units(document["events"][:3]),
        "events_total": len(document["events"]),
        "notes": document["notes"][:_LISTED],
        "less_sure_left_out": len(document["findings"]) - len(rows),
    }
    return page(fixed, "findings", rows, cursor, min(max(top_n, 1), 50))


def compare_sessions(catalogue: Catalogue, before: str, after: str) -> str:
    """Whether a change helped, step by step: two recordings, before and after."""
    first, second = catalogue.get(before), catalogue.get(after)
    document: dict[str, Any] = dict(functions.to_json(functions.diff(first.path, second.path)))
    for measure in document["measures"]:
        name = measure["name"]
        measure["name"] = OwnText(name)
        if name.endswith("_ns"):  # its figures carry no unit of their own
            measure["name"] = OwnText(name.removesuffix("_ns") + "_ms")
            for side in ("before", "after"):
                measure[side] = _spread_in_ms(measure[side])
    for cause in document["causes"]:
        for side in ("before", "after"):
            cause[f"{side}_spread_ms"] = _spread_in_ms(cause.pop(side))
    return whole(
        {"before_session": OwnText(first.id), "after_session": OwnText(second.id), **with_units(document)}
    )


def _spread_in_ms(spread: dict[str, Any] | None) -> dict[str, Any] | None:
    if spread is None:
        return None
    scaled = with_units({"ns": {key: value for key, value in spread.items() if key != "count"}})["ms"]
    return {"count": spread["count"], **scaled}


def get_gpu_status(catalogue: Catalogue, session: str | None = None, at_s: float | None = None) -> str:
    """NVML figures of each GPU at a moment (default: the end), with the reasons for missing ones."""
    recording = catalogue.get(session)
    frame = recording.frame(at_s)
    at = (frame.time_ns - frame.start_ns) / 1e9
    return gpu_page({"session": recording.id, "at_s": round(at, 3)}, frame.gpus)


def gpu_page(head: dict[str, Any], gpus: Sequence[GpuRow]) -> str:
    """The GPUs of one moment."""
    rows = []
    for gpu in gpus:
        names = (one.name for one in dataclasses.fields(gpu))
        hidden = ("unavailable", "utilization_history", "mig", "processes", "age_ns")
        figures = {name: getattr(gpu, name) for name in names if name not in hidden}
        rows.append(
            {
                **figures,
                "sample_age_ms": gpu.age_ns / 1e6,
                "mig_instances": len(gpu.mig),
                "processes": None if gpu.processes is None else [one.pid for one in gpu.processes[:_LISTED]],
                "not_available": [
                    {"figure": OwnText(name) if name in figures else name, "reason": why}
                    for name, why in gpu.unavailable
                ],
            }
        )
    return page(head, "gpus", rows)
