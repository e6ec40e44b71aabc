"""A flame graph of lines: the time of calls and waits by line, under its callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gputop.exchange.stacks import StackTime
from gputop.format import format_count, format_ns
from gputop.report_page.markup import text

_LEAST = 0.002  # of the width: narrower boxes cannot be seen
_DEEPEST = 48
_MOST = 1000  # boxes
_ROW = 18  # pixels


@dataclass(slots=True)
class _Box:
    """A frame under its callers."""

    name: str
    ns: int = 0
    count: int = 0
    inner: dict[str, _Box] = field(default_factory=dict)


def flame(rows: Sequence[StackTime], names: Mapping[int, str], about: str) -> str:
    """Return the graph as HTML, with the process at the top and the call at the bottom of each column.

    Args:
        rows: Stacks with their time.
        names: Of processes.
        about: The kind of time.
    """
    top = _tree(rows, names)
    if not top.ns:
        return ""
    boxes: list[str] = []
    depth = _draw(top, 0.0, 0, top.ns, boxes)
    return (
        f'<h3>{about}: {format_ns(top.ns)}</h3><svg class="flame" height="{(depth + 1) * _ROW}" role="img" '
        f'aria-label="{about}">{"".join(boxes)}</svg>'
    )


def _tree(rows: Sequence[StackTime], names: Mapping[int, str]) -> _Box:
    top = _Box("all")
    for row in rows:
        frames = [frame.text() for frame in reversed(row.frames) if frame.file]
        path = [
            f"{names.get(row.pid, '')} ({row.pid})",
            *([f"range {row.ranges}"] if row.ranges else ()),
            *(frames[-_DEEPEST:] or ["line not known"]),
            row.what,
        ]
        box = top
        box.ns, box.count = box.ns + row.ns, box.count + row.count
        for name in path:
            box = box.inner.setdefault(name, _Box(name))
            box.ns, box.count = box.ns + row.ns, box.count + row.count
    return top


def _draw(box: _Box, left: float, depth: int, whole: int, boxes: list[str]) -> int:
    """Draw a box and those under it; return the deepest row."""
    if box.ns < _LEAST * whole or len(boxes) >= _MOST:
        return depth - 1
    share = box.ns / whole
    title = f"{text(box.name)}: {format_ns(box.ns)}, {100 * share:.1f} %, {format_count(box.count)} times"
    boxes.append(
        f'<svg x="{100 * left:.3f}%" y="{depth * _ROW}" width="{100 * share:.3f}%" height="{_ROW}">'
        f'<rect class="hue{depth % 4}" width="100%" height="{_ROW - 1}"><title>{title}</title></rect>'
        f'<text x="3" y="13">{text(box.name)}</text></svg>'
    )
    deepest = depth
    for inner in sorted(box.inner.values(), key=lambda one: -one.ns):
        deepest = max(deepest, _draw(inner, left, depth + 1, whole, boxes))
        left += inner.ns / whole
    return deepest
