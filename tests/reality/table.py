"""The two tables of ``docs/real-gpus.md``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tests.reality.blind import NEAR, SKEW_NS, Blind
from tests.reality.judge import Judged

HEAD = """# Real GPUs: what gputop says of traces that others recorded

Written by `make real-traces ARGS=FOLDER`: do not edit. The traces are public files of torch.profiler and
Nsight Systems (V100, A100, H100, B200, MI200, MI300; training, inference, diffusion, plain CUDA and MPI
programs). None of them is part of this project; the last part of this page says where they are from. The
truth is computed from the rows of each file by `tests/reality/`, which reads them without gputop and in
plain loops.

"""

EXACT = """## With their kernels

`gputop import`, then `gputop explain`. *Rows* is what the rows say of the idle time by what the
launching thread was in, or of the work where a GPU is idle for less than a tenth. *Idle* is the share of
the span of each GPU in which nothing ran: by the rows, and after the slash by gputop where that is
another one. A class is right if it is one of what takes at least 30 % of the time in question, or most
of it. A cross stands beside what is wrong.

"""

BLIND = """## Blind: as if observed live

Of the same files only the calls, and the utilisation that NVML would have told, computed from the
kernels with windows of 1/6 s and of 1 s (the worse one is shown). So this is what gputop proves, bounds
and estimates on real hardware. *Ran into* is the longest time within proved idle time in which a kernel
ran; clocks of host and GPU are apart by up to 20 us in such files. The bounds hold if what is proved is
no more than the time in which nothing ran, and the upper bound no less than the time in which nothing
was left to do. An estimate must be within 5 points where a file lasts for more than two seconds. Files whose
launches are not in them are left out. Events have no identity in such files, so waits for them prove
nothing here.

"""


def page(rows: Sequence[Judged], blind: Sequence[Blind], sources: Sequence[str]) -> str:
    """The page."""
    parts = [HEAD, EXACT, *_lines(summary(rows)), "\n"]
    head = ("file", "idle %", "rows", "class", "first cause", "where")
    parts += [_row(head), _row(["---"] * len(head)), *map(exact_row, rows), "\n"]
    parts += [BLIND, *_lines(blind_summary(blind)), "\n"]
    head = ("file", "GPU", "s", "idle %", "bounds %", "estimate %", "by", "ran into")
    parts += [_row(head), _row(["---"] * len(head)), *map(blind_row, worst(blind))]
    if sources:
        parts += ["\n## Where they are from\n\n", *(f"- {one}\n" for one in sources)]
    return "".join(parts)


def _lines(facts: Iterable[tuple[str, int, int]]) -> Iterable[str]:
    yield _row(("requirement", "holds in"))
    yield _row(("---", "---"))
    for what, good, whole in facts:
        yield _row((what, f"{good} of {whole}"))


def summary(rows: Sequence[Judged]) -> list[tuple[str, int, int]]:
    """(requirement, in how many it holds, of how many)."""
    gpus = [one for row in rows for one in row.idle]
    wanted = [row for row in rows if row.wanted]
    named = [row for row in wanted if row.named != "None"]
    told = [row for row in wanted if "no launch in the file" not in row.rows or row.named != "None"]
    return [
        ("every GPU is there, its idle time that of the rows", sum(row.exact for row in rows), len(rows)),
        ("GPUs", sum(told is not None for _gpu, _share, told in gpus), len(gpus)),
        ("a class is named (idle for more than 10 %, or busy for more than 90 %)", len(named), len(wanted)),
        ("the class is what the rows show", sum(row.right for row in told), len(told)),
    ]


def blind_summary(blind: Sequence[Blind]) -> list[tuple[str, int, int]]:
    """(requirement, in how many it holds, of how many)."""
    estimates = [one.apart for one in blind if one.apart is not None]
    return [
        ("no kernel runs in proved idle time", sum(one.overlap_ns <= SKEW_NS for one in blind), len(blind)),
        ("the truth lies within the bounds", sum(one.bounded for one in blind), len(blind)),
        ("the estimate is within 5 points (over 2 s)", sum(one <= NEAR for one in estimates), len(estimates)),
    ]


def exact_row(one: Judged) -> str:
    """A line of the first table."""
    shares = ", ".join(_shares(gpu, share, told, several=len(one.idle) > 1) for gpu, share, told in one.idle)
    named = one.named + ("" if one.right or not one.wanted else " ✗")
    return _row((short(one.name), shares, one.rows, named, one.first, _plain(one.where)))


def _shares(gpu: int, share: float, told: float | None, *, several: bool) -> str:
    which = f"GPU {gpu}: " if several else ""
    if told is None:
        return f"{which}{100 * share:.1f} / - ✗"
    same = f"{100 * told:.1f}" == f"{100 * share:.1f}"
    return f"{which}{100 * share:.1f}" if same else f"{which}{100 * share:.1f} / {100 * told:.1f}"


def worst(blind: Sequence[Blind]) -> list[Blind]:
    """Of each GPU the window with which gputop is off most."""
    found: dict[tuple[str, int], Blind] = {}
    for one in blind:
        key = one.name, one.gpu
        if key not in found or (one.apart or 0.0) > (found[key].apart or 0.0):
            found[key] = one
    return list(found.values())


def blind_row(one: Blind) -> str:
    """A line of the second table."""
    estimate = "-"
    if one.estimate is not None and one.source:
        estimate = f"{100 * one.estimate:.1f} ± {100 * one.error:.1f}"
    if one.apart is not None and one.apart > NEAR:
        estimate += " ✗"
    return _row(
        (
            short(one.name),
            str(one.gpu),
            f"{one.span_ns / 1e9:.3f}",
            f"{100 * one.idle:.1f}",
            f"{100 * one.proved:.1f}..{100 * one.most:.1f}{'' if one.bounded else ' ✗'}",
            estimate,
            one.source if estimate != "-" else "",
            f"{one.overlap_ns / 1000:.0f} us ✗" if one.overlap_ns > SKEW_NS else "",
        )
    )


def short(name: str) -> str:
    """A file's name without what all names have."""
    name = re.sub(r"\.(json|sqlite|pt|trace|gz)\b", "", name)
    return _plain(name.replace("__", "/").replace("/tests/traces/", "/").replace("/tests/data/", "/"))[-70:]


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("<", "(").replace(">", ")").replace("`", "'")[:90]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
