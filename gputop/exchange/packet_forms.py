"""The most frequent packets of a Perfetto trace: slices, thread states, wakeups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from gputop.exchange.packets import Template

SEQUENCE = 1
NEEDS_STATE = 2  # TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
# of calls; their interned names are their places, from 1 on
ARGUMENTS = ("bytes", "stream", "returned", "line", "kernel", "shape", "range")
TEXTS = frozenset({"line", "kernel", "shape", "range"})  # those that are interned texts

Placeholder = Callable[[str], int]


class Forms:
    """Makes each packet template on first use."""

    def __init__(self, proto: Any) -> None:
        self._proto = proto
        self._made: dict[Any, Template] = {}
        self._states = proto.GenericKernelTaskStateEvent

    def begin(self, arguments: Iterable[str] = (), *, flow: str = "") -> Template:
        """Begin of a slice: ``time``, ``track``, ``name`` (interned) and its arguments.

        Args:
            arguments: Of ``ARGUMENTS``.
            flow: ``from`` or ``to``: an instant at which the arrow ``flow`` starts or ends; "": a slice.
        """
        return self._form(("begin", tuple(arguments), flow), partial(self._begin, tuple(arguments), flow))

    def end(self) -> Template:
        """End of the innermost slice of a ``track`` at ``time``."""
        return self._form("end", self._end)

    def state(self, name: str) -> Template:
        """State of thread ``tid`` from ``time`` on, seen by ``cpu``; ``name`` as in Perfetto's enum."""
        return self._form(("state", name), partial(self._state, name))

    def _form(self, key: Any, fill: Callable[[Any, Placeholder], None]) -> Template:
        if key not in self._made:
            self._made[key] = Template(self._proto.TracePacket, fill, ("flow",))
        return self._made[key]

    def _event(self, packet: Any, placeholder: Placeholder, kind: str) -> Any:
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.sequence_flags = NEEDS_STATE
        packet.timestamp = placeholder("time")
        event = packet.track_event
        event.type = getattr(self._proto.TrackEvent, f"TYPE_{kind}")
        event.track_uuid = placeholder("track")
        return event

    def _begin(self, arguments: tuple[str, ...], flow: str, packet: Any, placeholder: Placeholder) -> None:
        event = self._event(packet, placeholder, "INSTANT" if flow else "SLICE_BEGIN")
        event.name_iid = placeholder("name")
        if flow:
            (event.flow_ids if flow == "from" else event.terminating_flow_ids).append(placeholder("flow"))
        for name in arguments:
            annotation = event.debug_annotations.add()
            annotation.name_iid = ARGUMENTS.index(name) + 1
            if name in TEXTS:
                annotation.string_value_iid = placeholder(name)
            else:
                annotation.uint_value = placeholder(name)

    def _end(self, packet: Any, placeholder: Placeholder) -> None:
        self._event(packet, placeholder, "SLICE_END")

    def _state(self, name: str, packet: Any, placeholder: Placeholder) -> None:
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.sequence_flags = NEEDS_STATE
        packet.timestamp = placeholder("time")
        event = packet.generic_kernel_task_state_event
        event.cpu, event.tid = placeholder("cpu"), placeholder("tid")
        event.state = getattr(self._states, f"TASK_STATE_{name}")
        event.prio = 0
