"""Where a thread was while the GPU waited for it, by the operators and functions of an imported file."""

from __future__ import annotations

import re

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.chains.places import hot_line
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints, union
from gputop.format import format_percent
from probes.activities import python_place
from probes.code.source_files import is_library

_PART, _NAMED, _LONGEST = 0.1, 4, 80
_LINE, _MOST = 0.2, 0.5  # of the time, for a function or an operator to stand for it
_TAIL = re.compile(r",? (op_id|seq) = \d+.*$")


def shown(name: str) -> str:
    """A name without the numbers that NVTX ranges of PyTorch carry along."""
    return _TAIL.sub("", name).strip()[:_LONGEST]


def places(scene: Scene, rows: Ints) -> dict[str, int]:
    """ns by the innermost operator or range in which these segments lie."""
    return _times(scene, rows, python=False)


def in_words(scene: Scene, rows: Ints) -> str:
    """``in aten::item 62 %, autograd 12 %``; "" where no operator is known."""
    whole = max(int(scene.ns[rows].sum()), 1)
    found = sorted(places(scene, rows).items(), key=lambda one: -one[1])[:_NAMED]
    told = [f"{name} {format_percent(100 * ns / whole)} %" for name, ns in found if ns >= _PART * whole]
    return f"in {', '.join(told)}" if told else ""


def own_line(scene: Scene, rows: Ints) -> tuple[Line, float] | None:
    """(the function of the program's own in which most of these segments lie, its share)."""
    whole = max(int(scene.ns[rows].sum()), 1)
    found = _times(scene, rows, python=True)
    name = max(found, key=lambda one: (found[one], one), default="")
    place = python_place(name)
    return (Line(*place), found[name] / whole) if place is not None else None


def line_in(scene: Scene, rows: Ints) -> Line | None:
    """Where these segments lie: the program's own function, else the operator or range; None if in many."""
    own = own_line(scene, rows)
    if own is not None and own[1] >= _LINE:
        return own[0]
    if (met := hot_line(scene, rows)) is not None and not is_library(met.line.file):
        return met.line
    whole, found = max(int(scene.ns[rows].sum()), 1), places(scene, rows)
    name = max(found, key=lambda one: (found[one], one), default="")
    if not name or found[name] < _MOST * whole:
        return None
    return Line("NVTX" if scene.evidence.header.get("source") == "nsys" else "torch", 0, name)


def _times(scene: Scene, rows: Ints, *, python: bool) -> dict[str, int]:
    traced, texts = scene.analysis.traced, scene.evidence.activities.texts
    found: dict[str, int] = {}
    if traced is None:
        return found
    segments = scene.segments
    for thread in np.unique(segments.thread[rows]).tolist():
        mine = rows[segments.thread[rows] == thread]
        tid = int(scene.evidence.threads.tid[thread])
        begin, end = union(segments.begin[mine], segments.end[mine])
        flat = (
            traced.nesting.functions(tid, begin, end, _own_functions(texts))
            if python
            else traced.nesting.named(tid, begin, end)
        )
        for name, ns in flat.times(begin, end).items():
            text = texts[name] if python else shown(texts[name])
            found[text] = found.get(text, 0) + ns
    return found


def _own_functions(texts: tuple[str, ...]) -> Ints:
    """Functions of Python that are the program's."""
    places = ((number, python_place(text)) for number, text in enumerate(texts) if ".py(" in text)
    return np.array([number for number, place in places if place and not is_library(place[0])], np.int64)
