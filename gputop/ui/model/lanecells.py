"""What a cell of a lane shows: the sign of what took most of its time, never more than is known."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from gputop.explain.causes.families import FAMILIES
from gputop.explain.evidence.waits import Wait
from gputop.explain.lanes import (
    ASSUMED,
    BLOCKED,
    BUSY,
    CALL_WORDS,
    COLUMN_NS,
    FINDING,
    GONE,
    LOST,
    PRESUMED,
    PROVED,
    QUEUED,
    RUNNING,
    WHOLE,
)
from gputop.format import format_ns, sparkline
from gputop.ui.model.lanehistory import Cells
from gputop.ui.model.look import Glyphs, Span, merged

_WAITS = {
    Wait.OTHER: ("k", "in the kernel"),
    Wait.LOCK: ("l", "lock"),
    Wait.POLL: ("e", "event"),
    Wait.READ: ("r", "read"),
    Wait.DATA: ("r", "read"),
    Wait.REQUEST: ("w", "waits for a request"),
    Wait.SOCKET: ("n", "network"),
    Wait.DISK: ("d", "disk"),
    Wait.SLEEP: ("s", "asleep"),
    Wait.DRIVER: ("g", "GPU driver"),
    Wait.FAULT: ("m", "memory page"),
    Wait.CHILD: ("c", "child"),
    Wait.MEMORY: ("m", "memory page"),
    Wait.REQUEST: ("q", "request"),
    Wait.STOPPED: ("t", "stopped"),
}
_SURE = 0.05  # of idle time: where more of it is not proved, its figure is an estimate


@dataclass(frozen=True, slots=True)
class Sign:
    """One kind of cell: what is drawn, what it means, how it is coloured."""

    glyph: str
    word: str
    token: str


@dataclass(frozen=True, slots=True)
class CellLine:
    """A lane as it is drawn: its cells, the signs used in it, and a figure for all of it."""

    spans: tuple[Span, ...]
    signs: tuple[Sign, ...]
    figure: str


def meanings(glyphs: Glyphs) -> tuple[tuple[str, str], ...]:
    """(sign, what it means) for the help: all that a lane may show."""
    families = [(one.letter, f"GPU provably without work: {one.word}") for one in FAMILIES]
    words: dict[str, list[str]] = {}
    for letter, word in _WAITS.values():
        words.setdefault(letter, []).append(word)
    return (
        (glyphs.full, "GPU certainly at work; thread running"),
        (glyphs.half, "GPU presumably at work: what an estimate of its idle time leaves"),
        (glyphs.dot, "nobody can tell"),
        *families,
        ("s d p ...", "of a GPU: the same as far as one can tell: estimated, not proved"),
        ("Q", "thread waits for a CPU"),
        (" ".join(words), "of a thread: blocked: " + ", ".join(parts[0] for parts in words.values())),
        ("S C L A O", f"its calls: {', '.join(CALL_WORDS)}"),
        ("! ~", "a worst moment of a finding; records lost"),
    )


def _blank() -> Sign:
    return Sign(" ", "", "")


def _drawn(signs: list[Sign], figure: str) -> CellLine:
    used = tuple(dict.fromkeys(sign for sign in signs if sign.word))
    return CellLine(merged([(sign.glyph, sign.token) for sign in signs]), used, figure)


def _unknown(glyphs: Glyphs) -> Sign:
    return Sign(glyphs.dot, "unknown", "unknown")


def _full(glyphs: Glyphs, word: str) -> Sign:
    return Sign(glyphs.full, word, "busy")


def _time(shares: Cells, known: Cells) -> str:
    ns = int(shares.sum()) * COLUMN_NS // WHOLE
    return (format_ns(ns) if ns else "0") if known.any() else "-"


def gpu_line(shares: Cells, known: Cells, glyphs: Glyphs) -> CellLine:
    """A GPU: at work, without work by cause, or not known.

    A capital is proved; a small letter is estimated, or rests on an assumption that is not known to hold.
    """
    families = len(FAMILIES)
    proved, assumed = shares[PROVED : PROVED + families], shares[ASSUMED : ASSUMED + families]
    idle, working = (proved + assumed).sum(axis=0), shares[BUSY] + shares[PRESUMED]
    unknown = known * WHOLE - idle - working
    most = np.argmax(np.stack([unknown, idle, working]), axis=0).tolist()
    family = np.argmax(proved + assumed, axis=0).tolist()
    sure = (proved.sum(axis=0) >= assumed.sum(axis=0)).tolist()
    certain = (shares[BUSY] >= shares[PRESUMED]).tolist()
    signs = []
    for cell, there in enumerate(known.tolist()):
        if not there:
            signs.append(_blank())
        elif most[cell] == 1:
            one = FAMILIES[family[cell]]
            estimate = Sign(one.letter.lower(), f"{one.word} (estimated)", "warn")
            signs.append(Sign(one.letter, one.word, "host") if sure[cell] else estimate)
        elif most[cell] == 2:
            signs.append(
                _full(glyphs, "busy") if certain[cell] else Sign(glyphs.half, "presumably busy", "busy")
            )
        else:
            signs.append(_unknown(glyphs))
    about = "~" if assumed.sum() > _SURE * idle.sum() else ""
    return _drawn(signs, f"idle {about}{_time(idle, known)}")


def idle_line(shares: Cells, known: Cells, glyphs: Glyphs) -> CellLine:
    """How much of each cell the GPU was without work, as bars from 0 to 100 %."""
    idle = shares[PROVED:PRESUMED].sum(axis=0)
    percent = (100 * idle // np.maximum(known * WHOLE, 1)).tolist()
    text = sparkline(percent, len(percent), ascii_only=glyphs.ascii)
    drawn = "".join(sign if there else " " for sign, there in zip(text, known.tolist(), strict=True))
    return CellLine(((drawn, "host"),), (), "0-100%")


def state_line(shares: Cells, known: Cells, glyphs: Glyphs) -> CellLine:
    """A thread: on a CPU, waiting for one, blocked by what it waits for, or not known."""
    blocked = shares[BLOCKED:]
    asleep = blocked.sum(axis=0)
    others = shares[[QUEUED, RUNNING, GONE]]
    unknown = known * WHOLE - asleep - others.sum(axis=0)
    most = np.argmax(np.stack([unknown, asleep, *others]), axis=0).tolist()
    wait = np.argmax(blocked, axis=0).tolist()
    signs = []
    for cell, there in enumerate(known.tolist()):
        if not there or most[cell] == 4:
            signs.append(_blank())
        elif most[cell] == 1:
            letter, word = _WAITS[Wait(wait[cell])]
            signs.append(Sign(letter, word, "dim"))
        elif most[cell] == 2:
            signs.append(Sign("Q", "runnable", "host"))
        else:
            signs.append(_full(glyphs, "running") if most[cell] else _unknown(glyphs))
    return _drawn(signs, f"CPU {_time(shares[RUNNING], known)}")


def call_line(shares: Cells, known: Cells, glyphs: Glyphs) -> CellLine:
    """The CUDA calls that a thread is in, where they take most of a cell."""
    inside = shares.sum(axis=0)
    kind = np.argmax(shares, axis=0).tolist()
    signs = []
    for cell, (there, part) in enumerate(zip(known.tolist(), inside.tolist(), strict=True)):
        if not there:
            signs.append(_blank())
        elif 2 * part >= there * WHOLE:
            word = CALL_WORDS[kind[cell]]
            signs.append(Sign(word[0].upper(), word, "pending"))
        else:
            signs.append(Sign(glyphs.rule, "", "rule"))
    return _drawn(signs, f"calls {_time(inside, known)}")


def mark_line(marks: Cells, chosen: Set[int], glyphs: Glyphs) -> CellLine:
    """Where records are missing, and the worst moments of the findings; ``chosen`` are the selected one's."""
    lost, found = marks[LOST].tolist(), marks[FINDING].tolist()
    signs = []
    for cell, (missing, finding) in enumerate(zip(lost, found, strict=True)):
        if missing:
            signs.append(Sign("~", "records lost", "alert"))
        elif cell in chosen:
            signs.append(Sign(glyphs.descending, "selected finding", "alert"))
        else:
            signs.append(Sign("!", "finding", "warn") if finding else _blank())
    return _drawn(signs, "")
