"""The division of a screen's lines: tables first, then the timeline and the chain."""

from __future__ import annotations

from typing import NamedTuple

_BOX = 2  # lines of a border
_PART = 0.28  # of the lines: reserved for the timeline
_PART_OF_BOTH = 0.42  # of the lines: reserved for timeline and chain
_LEAST_LANES, _LEAST_LINKS = 4, 3  # lines; with fewer they are hidden
_LEAST_DETAILS = 4  # lines of calls: tabs, heading, two rows
_FIRST_ROWS, _FIRST_PART = 12, 0.4  # processes, and their part of the lines, before everything else


class Room(NamedTuple):
    """Lines within the boxes of the processes, the timeline, the chain, and the chart of a call."""

    processes: int
    lanes: int
    links: int
    chart: int


def shared(
    left: int, *, rows: int, details: int, lanes: int, links: int, chart: int, open_lanes: bool = False
) -> Room:
    """Return the lines of each pane; arguments are the lines that panes could fill, 0 for hidden ones.

    Args:
        left: Lines left by panes above and below.
        rows: Processes.
        details: Lines of calls or threads, with their heading and tabs.
        lanes: Lines of the timeline.
        links: Lines of the chain.
        chart: Lines of the chart of the selected call, with its heading.
        open_lanes: The user opened the timeline: it is shown even with few lines.
    """
    wanted, calls, floor = rows + 1 + _BOX, details + _BOX, min(details, _LEAST_DETAILS) + _BOX
    first = min(wanted, max(_FIRST_ROWS + 1 + _BOX, int(left * _FIRST_PART)))
    if first == wanted == left - floor + 1:
        floor -= 1  # one call less, so that all processes are in sight
    part = int(left * (_PART_OF_BOTH if links else _PART))
    room = max(left - wanted - calls - chart, min(part, left - first - floor))
    least = min(lanes, _LEAST_LANES)
    lanes_room = min(lanes, max(room - _BOX - (links + _BOX if links else 0), least))
    lanes_room = lanes_room if open_lanes or room >= least + _BOX else 0
    room -= lanes_room + _BOX if lanes_room else 0
    links_room = min(links, room - _BOX) if links else 0
    links_room = links_room if links_room >= _LEAST_LINKS else 0
    body = left - (lanes_room + _BOX if lanes_room else 0) - (links_room + _BOX if links_room else 0)
    processes = min(wanted, max(body // 2, body - calls, min(first, body - floor)))
    spare = body - processes - calls
    shown = chart if spare >= chart else 0
    spare = max(spare - shown, 0)
    more = min(spare, lanes - lanes_room) if lanes_room else 0
    links_room += min(spare - more, links - links_room) if links_room else 0
    return Room(processes - _BOX, lanes_room + more, links_room, shown)
