"""Tools about CUDA graphs of a process: their lifecycle, and how often each is launched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from gputop.errors import USAGE, CommandError
from gputop.query.catalogue import Catalogue, Recording
from gputop.query.count_tools import missing_in
from gputop.query.graph_calls import Capture, GraphCalls, GraphRole, Rows, executables, graph_calls
from gputop.query.reply import OwnText, in_ms, page

WINDOW_S: Final = 60.0
_HOT_PER_S: Final = 1.0
_KINDS: Final = {
    GraphRole.INSTANTIATE: "instantiation",
    GraphRole.UPDATE: "update",
    GraphRole.UPLOAD: "upload",
}
_UNKNOWN: Final = (
    "which capture or graph an executable was made of: records hold the executable's handle, not the graph's",
    "when graphs and executables were destroyed: a handle may stand for several, one after the other",
)


def graph_lifecycle(
    catalogue: Catalogue,
    pid: int,
    session: str | None = None,
    from_s: float = 0.0,
    window_s: float = WINDOW_S,
    cursor: str | None = None,
) -> str:
    """CUDA graphs of a process in order: captures, instantiations, updates, launches; and what of that is not
    known.
    """
    recording = catalogue.get(session)
    found = _found(recording)
    rows, window = _window(found, pid, from_s, window_s)
    captures = [one for one in found.captures.get(pid, ()) if window[0] <= _at(one) < window[1]]
    fixed = {**_head(recording, found, pid, rows, window), **_sums(rows, captures)}
    events = sorted([*_captures(captures, found), *_others(rows, found)], key=lambda one: one["at_s"])
    return page(fixed, "events", events, cursor)


def graph_frequency(
    catalogue: Catalogue,
    pid: int,
    session: str | None = None,
    from_s: float = 0.0,
    window_s: float = WINDOW_S,
    cursor: str | None = None,
) -> str:
    """How often each executable CUDA graph of a process is launched, hot and cold ones, time in the calls."""
    recording = catalogue.get(session)
    found = _found(recording)
    rows, window = _window(found, pid, from_s, window_s)
    launched = executables(rows)
    rates = [one.per_s for one in launched if one.per_s is not None]
    median = float(np.median(rates)) if rates else None
    graphs = []
    for one in launched:
        rate = one.per_s
        hot = None if rate is None or median is None else rate >= max(median, _HOT_PER_S)
        lasted = (one.rows["end"] - one.rows["begin"]).astype(np.int64)
        graphs.append(
            {
                "executable": _handle(one.handle),
                "launches": len(one.rows),
                "failed_launches": one.failed,
                "launches_per_s": None if rate is None else round(rate, 3),
                "class": OwnText("not known" if hot is None else "hot" if hot else "cold"),
                "usual_interval_ms": in_ms(one.usual_ns),
                "first_s": _moment(found, one.rows["begin"][0]) if len(one.rows) else None,
                "last_s": _moment(found, one.rows["begin"][-1]) if len(one.rows) else None,
                "in_launch_calls_ms": in_ms(int(lasted.sum())),
                "usual_launch_call_ms": in_ms(float(np.median(lasted))) if len(lasted) else None,
                "streams": len(np.unique(one.rows["stream"])),
            }
        )
    fixed = {
        **_head(recording, found, pid, rows, window),
        "executables_launched": len(launched),
        "median_launches_per_s": None if median is None else round(median, 3),
        "instantiations": _count(rows, GraphRole.INSTANTIATE),
        "hot": OwnText(f"at least as often as the median, and {_HOT_PER_S:g} time a second or more"),
    }
    return page(fixed, "executables", graphs, cursor)


def _found(recording: Recording) -> GraphCalls:
    if not recording.inspected()["probes"]["calls_observed"]:
        raise CommandError("it was recorded without eBPF: whether the program uses graphs is not known")
    return recording.read("graphs", graph_calls)


def _window(found: GraphCalls, pid: int, from_s: float, window_s: float) -> tuple[Rows, tuple[int, int]]:
    """(calls of a process that begin in a window, the window in ns)."""
    if not window_s > 0:
        raise CommandError("window_s is longer than 0", USAGE)
    begin = found.start_ns + int(min(max(from_s, -1e9), 1e9) * 1e9)
    end = begin + int(min(window_s, 1e9) * 1e9)
    rows = found.rows
    chosen = (rows["pid"] == pid) & (rows["begin"] >= begin) & (rows["begin"] < end)
    return rows[chosen], (begin, end)


def _head(
    recording: Recording, found: GraphCalls, pid: int, rows: Rows, window: tuple[int, int]
) -> dict[str, Any]:
    """The first fields of both tools."""
    mine = found.rows[found.rows["pid"] == pid]
    before = mine[mine["begin"] < window[1]]
    launched = np.count_nonzero(np.unique(before["handle"][before["part"] == GraphRole.LAUNCH]))
    made = _count(before, GraphRole.INSTANTIATE)
    head = {
        "session": recording.id,
        "pid": pid,
        "name": found.names.get(pid),
        "from_s": _moment(found, window[0]),
        "to_s": _moment(found, window[1]),
        "graph_calls": len(rows),
        "graph_calls_outside": len(mine) - len(rows),
        # a launched handle without an instantiation: older than the recording, or its record is lost
        "executables_made_before_the_recording_at_least": max(int(launched) - made, 0),
        "lost_events": recording.inspected()["lost"]["events"],
        "not_known": [OwnText(one) for one in _UNKNOWN],
        **missing_in(recording),
    }
    if not len(mine):
        head["processes_with_graph_calls"] = [
            {
                "pid": other,
                "name": name,
                "launches": _count(found.rows[found.rows["pid"] == other], GraphRole.LAUNCH),
            }
            for other, name in found.names.items()
        ]
    return head


def _sums(rows: Rows, captures: list[Capture]) -> dict[str, Any]:
    whole = [one for one in captures if one.begin is not None and one.end is not None and one.end["ret"] == 0]
    launches = _count(rows, GraphRole.LAUNCH)
    return {
        "captures": len(whole),
        "captures_failed": sum(one.end is not None and bool(one.end["ret"]) for one in captures),
        "captures_without_begin_or_end": sum(one.begin is None or one.end is None for one in captures),
        **{f"{name}s": _count(rows, part) for part, name in _KINDS.items()},
        "launches": launches,
        "failed": int((rows["ret"] != 0).sum()),
        "launches_per_capture": round(launches / len(whole), 2) if whole else None,
    }


def _captures(captures: list[Capture], found: GraphCalls) -> Iterator[dict[str, Any]]:
    for one in captures:
        known = one.begin if one.begin is not None else one.end
        both = one.begin is not None and one.end is not None
        yield {
            "event": OwnText("capture"),
            "at_s": _moment(found, _at(one)),
            "took_ms": in_ms(int(one.end["end"] - one.begin["begin"])) if both else None,
            "tid": int(known["tid"]),
            "stream": _hex(known["stream"]),
            "calls_into_its_stream": one.calls,
            "error": None if one.end is None else int(one.end["ret"]),
        }


def _others(rows: Rows, found: GraphCalls) -> Iterator[dict[str, Any]]:
    """Events of a row each; consecutive launches of one executable are one event."""
    shown = rows[rows["part"] >= GraphRole.INSTANTIATE]
    keys = np.stack(
        [shown["part"], shown["handle"], shown["stream"], shown["tid"], shown["ret"] != 0], axis=1
    )
    heads = np.ones(len(shown), np.bool_)
    heads[1:] = (keys[1:] != keys[:-1]).any(axis=1) | (shown["part"][1:] != GraphRole.LAUNCH)
    # an unused handle may be the graph's, in older recordings
    used = set(rows["handle"][rows["part"] > GraphRole.INSTANTIATE].tolist())
    for some in np.split(shown, np.flatnonzero(heads)[1:]) if len(shown) else ():
        first, part = some[0], GraphRole(int(some["part"][0]))
        figures = {
            "event": OwnText("launches" if part == GraphRole.LAUNCH else _KINDS[part]),
            "at_s": _moment(found, first["begin"]),
            "took_ms": in_ms(int((some["end"] - some["begin"]).sum())),
            "tid": int(first["tid"]),
            "executable" if int(first["handle"]) in used else "handle": _handle(first["handle"]),
            "error": int(first["ret"]),
        }
        if part in (GraphRole.LAUNCH, GraphRole.UPLOAD):
            figures["stream"] = _hex(first["stream"])
        if part == GraphRole.LAUNCH:
            figures |= {"count": len(some), "until_s": _moment(found, some["begin"][-1])}
        yield figures


def _at(one: Capture) -> int:
    return int(one.begin["begin"] if one.begin is not None else one.end["begin"])


def _count(rows: Rows, part: GraphRole) -> int:
    return int(((rows["part"] == part) & (rows["ret"] == 0)).sum())


def _handle(handle: Any) -> OwnText | None:
    """The handle as text; None: unknown, in a recording of another tool."""
    return _hex(handle) if handle else None


def _hex(handle: Any) -> OwnText:
    return OwnText(hex(int(handle)))


def _moment(found: GraphCalls, ns: Any) -> float:
    return round((int(ns) - found.start_ns) / 1e9, 6)
