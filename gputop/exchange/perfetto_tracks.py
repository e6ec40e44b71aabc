"""The tracks and names of a Perfetto trace, each defined once, before its use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gputop.analysis.answer.wording import loss_text
from gputop.analysis.chains.named_ranges import plain_name
from gputop.analysis.evidence.api_classes import ON_GPU, RANGE, SPAN
from gputop.api.session import Session
from gputop.engine.facts import Facts
from gputop.exchange.explained import ExplainedRecording
from gputop.exchange.packet_forms import NEEDS_STATE, SEQUENCE
from gputop.exchange.recorded_ranges import RecordedRanges
from gputop.format import escape_text
from probes.activities import activity_rows
from probes.arrays import each_number

_CLEARED = 1  # TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
_REALTIME, _MONOTONIC, _BOOTTIME = 1, 3, 6  # builtin clocks
_LONGEST = 1000  # characters of a name
_MOST_NUMBER = 1 << 31  # of a process or thread: Perfetto has 32 bits

Column = npt.NDArray[Any]


class Tracks:
    """Numbers of tracks and names; new ones are held for ``news``."""

    def __init__(self, session: Session, proto: Any) -> None:
        self._session, self._proto = session, proto
        self._uuids: dict[tuple[Any, ...], int] = {}
        self._names: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        self._news = proto.Trace()

    def news(self) -> Any:
        """Return a trace with the new definitions since the last call."""
        news, self._news = self._news, self._proto.Trace()
        return news

    def head(self, arguments: Sequence[str]) -> Any:
        """Return clocks, and the names of arguments."""
        clock = self._session.header.get("clock", {})
        packet = self._packet()
        packet.sequence_flags = _CLEARED
        packet.trace_packet_defaults.timestamp_clock_id = _MONOTONIC
        for number, name in enumerate(arguments, 1):
            entry = packet.interned_data.debug_annotation_names.add()
            entry.iid, entry.name = number, name
        snapshot = self._news.packet.add().clock_snapshot
        snapshot.primary_trace_clock = _MONOTONIC
        for number, key in (
            (_MONOTONIC, "monotonic_ns"),
            (_REALTIME, "realtime_ns"),
            (_BOOTTIME, "boottime_ns"),
        ):
            if isinstance(clock.get(key), int):
                one = snapshot.clocks.add()
                one.clock_id, one.timestamp = number, clock[key]
        return self.news()

    def name(self, name: str) -> int:
        return self._intern(self._names, name, "event_names")

    def text(self, text: str) -> int:
        """Return the interned value of an argument; 0 for none."""
        return self._intern(self._texts, text, "debug_annotation_string_values") if text else 0

    def _intern(self, known: dict[str, int], name: str, table: str) -> int:
        name = name[:_LONGEST]
        if name not in known:
            known[name] = len(known) + 1
            entry = getattr(self._packet().interned_data, table).add()
            entry.iid = known[name]
            if table == "event_names":
                entry.name = name
            else:
                entry.str = name.encode()
        return known[name]

    def threads(self, tids: Column, pids: Column, facts: Facts) -> Column:
        return self._each(tids, pids, facts, "")

    def off_cpu(self, tids: Column, pids: Column, facts: Facts) -> Column:
        """Return the track of each thread's time off the CPU."""
        return self._each(tids, pids, facts, "off-CPU")

    def wakeups(self, tids: Column, pids: Column, facts: Facts) -> Column:
        """Return the track of each thread's wakeups, made and received."""
        return self._each(tids, pids, facts, "wakeups")

    def _each(self, tids: Column, pids: Column, facts: Facts, kind: str) -> Column:
        both = pids.astype(np.int64) << 32 | tids.astype(np.int64)
        return each_number(both, lambda one: self._of_thread(one >> 32, one & 0xFFFFFFFF, facts, kind))

    def _of_thread(self, pid: int, tid: int, facts: Facts, kind: str) -> int:
        thread = self._uuids.get(("thread", pid, tid))
        if thread is None:
            self._process(pid, facts)
            thread, track = self._new(("thread", pid, tid), "")
            track.thread.pid, track.thread.tid = pid, tid
            track.thread.thread_name = escape_text(facts.thread_name(tid, pid))[:_LONGEST]
        return thread if not kind else self.track(kind, thread)

    def _process(self, pid: int, facts: Facts) -> int:
        if ("process", pid) not in self._uuids:
            _, track = self._new(("process", pid), "")
            track.process.pid = pid
            track.process.process_name = escape_text(facts.process_name(pid))[:_LONGEST]
        return self._uuids["process", pid]

    def track(self, name: str, parent: int = 0) -> int:
        key = ("track", name, parent)
        if key not in self._uuids:
            _, track = self._new(key, name)
            if parent:
                track.parent_uuid = parent
        return self._uuids[key]

    def counter(self, gpu: int, key: str) -> int:
        name = ("counter", gpu, key)
        if name not in self._uuids:
            parent = self.track(f"GPU {gpu}: NVML")
            _, track = self._new(name, key)
            track.parent_uuid = parent
            track.counter.unit_name = key.rpartition("_")[2]
        return self._uuids[name]

    def _new(self, key: tuple[Any, ...], name: str) -> tuple[int, Any]:
        self._uuids[key] = len(self._uuids) + 1
        track = self._packet().track_descriptor
        track.uuid = self._uuids[key]
        if name:
            track.name = escape_text(name)[:_LONGEST]
        return track.uuid, track

    def _packet(self) -> Any:
        packet = self._news.packet.add()
        packet.trusted_packet_sequence_id, packet.sequence_flags = SEQUENCE, NEEDS_STATE
        return packet

    # -- the explanation ------------------------------------------------------------------------------

    def explanation(self, known: ExplainedRecording) -> Any:
        """Return idle time by cause, findings at their worst moments, and stretches with lost records."""
        idle, report = known.idle, known.report
        self._event(self.track("gputop"), report.start_ns, f"verdict: {report.verdict}", {})
        pieces = zip(
            idle.gpu, idle.begin.tolist(), idle.end.tolist(), idle.cause, idle.title, idle.level, strict=True
        )
        for gpu, begin, end, cause, title, level in pieces:
            track = self.track(f"{gpu}: idle")
            self._event(track, begin, f"{cause} {title}".strip(), {"level": level}, end)
        for number, finding in enumerate(report.findings, 1):
            track = self.track(f"{number}. {finding.cause} {finding.title}", self.track("findings"))
            arguments = {
                "cause": finding.cause,
                "level": str(finding.level),
                "loss": loss_text(finding.loss, finding.idle_level),
                "line": "" if finding.line is None else finding.line.text(),
                "advice": "; ".join(finding.advice),
            }
            for moment in finding.moments_ns:
                self._event(track, report.start_ns + moment, finding.title, arguments)
        for begin, end in known.lost:
            self._event(self.track("lost records"), begin, "records are missing", {}, end)
        return self.news()

    def ranges(self, known: RecordedRanges, facts: Facts) -> Any:
        """Return the program's ranges: a track below each thread, and for each process.

        Ranges of a thread are nested. Those of a process may overlap: a range that begins while others are
        open has a track of its own.
        """
        open_until: dict[tuple[int, int], list[int]] = {}
        columns = ["begin", "end", "pid", "tid", "what", "name", "detail"]
        rows = known.rows[np.lexsort((-known.rows["end"], known.rows["begin"]))]
        nested: dict[int, list[int]] = {}  # track -> ends of the ranges that are open on it
        for begin, end, pid, tid, what, name, detail in rows[columns].tolist():
            arguments = {"kind": known.texts[what], "detail": known.texts[detail]}
            if not 0 <= pid < _MOST_NUMBER or tid >= _MOST_NUMBER:
                continue  # a damaged file: Perfetto would reject the trace
            if known.texts[what] == RANGE:
                track = self._of_thread(pid, max(tid, 0), facts, "ranges")
                around = nested.setdefault(track, [])
                while around and around[-1] <= begin:
                    around.pop()
                end = min([end, *around[-1:]])  # an overlapping range ends with the outer one
                around.append(end)
            else:
                lanes = open_until.setdefault((pid, tid), [])
                lane = next((place for place, until in enumerate(lanes) if until <= begin), len(lanes))
                lanes[lane:] = [end, *lanes[lane + 1 :]]
                parent = self._of_thread(pid, tid, facts, "") if tid >= 0 else self._process(pid, facts)
                track = self.track("spans" if not lane else f"spans {lane + 1}", parent)
            self._event(track, begin, plain_name(known.texts[name]), arguments, end if end > begin else None)
        return self.news()

    def activities(self, data: Mapping[str, Any]) -> Any:
        """Return kernels and copies by GPU and stream, and other tools' measurements by thread."""
        rows, texts = activity_rows(data)
        columns = ("begin", "end", "tid", "device", "stream", "what", "name", "detail")
        for begin, end, tid, device, stream, what, name, detail in rows[list(columns)].tolist():
            kind = texts[what]
            if kind in (RANGE, SPAN):
                continue
            where = f"GPU {device} stream {stream}" if device >= 0 else f"{kind} of {tid}"
            track = self.track("on the GPU" if kind in ON_GPU else "measured by another tool")
            arguments = {"kind": kind, "detail": texts[detail]}
            self._event(self.track(where, track), begin, texts[name] or kind, arguments, end)
        return self.news()

    def _event(
        self, track: int, at: int, name: str, arguments: dict[str, str], end: int | None = None
    ) -> None:
        kinds = self._proto.TrackEvent
        name_iid = self.name(escape_text(name))
        packet = self._packet()
        packet.timestamp = max(at, 0)
        event = packet.track_event
        event.type = kinds.TYPE_INSTANT if end is None else kinds.TYPE_SLICE_BEGIN
        event.track_uuid, event.name_iid = track, name_iid
        for key, value in arguments.items():
            if value:
                annotation = event.debug_annotations.add()
                annotation.name, annotation.string_value = key, escape_text(value)
        if end is not None:
            packet = self._packet()
            packet.timestamp = end
            packet.track_event.type, packet.track_event.track_uuid = kinds.TYPE_SLICE_END, track
