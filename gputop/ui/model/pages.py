"""The pages of help and of problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.engine.frame import Frame
from gputop.ui.model.gpus import gpu_text
from gputop.ui.model.look import Glyphs, Line, paragraph, wrap

FILTER_HELP = (
    ("python", "in pid, name, user or command line; several words: all of them"),
    ("!^42.* bob", "a regular expression over the same"),
    ("gpu:0,1", "uses GPU 0 or 1; in a tree its workers stay with it"),
    ("user: name:", "part of the user's or the process's name; command: of the command line"),
    ("call:Memcpy", "a CUDA call of that name ended in the window"),
    ("state:blocked", "a thread that calls CUDA is: running, runnable, blocked; or exited, storm"),
    ("pid:12,34", "these processes"),
)

# by the heading of a column
COLUMNS_HELP = {
    "CALLS/s": "CUDA calls per second; for a process, without calls nested in others",
    "TOP CALL": "the API function with most time",
    "TIME/s": "time in that function per second",
    "p50": "half of the calls are faster",
    "p95": "95 % of the calls are faster; ~: one of the slowest, of fewer than 100 calls",
    "p99": "99 % of the calls are faster; ~: one of the slowest, of fewer than 100 calls",
    "PREEMPT/s": "preemptions (involuntary context switches) per second",
    "VOL/s": "voluntary context switches per second: waiting or sleeping",
    "RUNQ%": "time its threads were runnable and not running; 100 is one thread all the time",
    "BLK%": "time its CUDA threads waited for something else",
    "CPU%": "time its threads were running; 100 is one CPU",
    "SM%": "of a process: time with a kernel running, by NVML; 100 is one GPU all the time",
    "GMBW%": "of a process: time with GPU memory read or written, by NVML",
    "GPU MEM": "memory on GPUs",
    "GMEM%": "memory on GPUs, as a share of its GPUs' memory",
    "RSS": "resident memory on the host; for a folded branch the sum, shared pages counted for each",
    "MEM%": "of a process: RSS as a share of the host's memory; of a GPU: its memory in use",
    "RUNTIME": "time since the process began, or until its end",
    "RANK": "rank in the job and number of ranks, by environment variables",
    "JOB": "job and step: Slurm, Ray, torchelastic",
    "POD": "the Kubernetes pod",
    "CONTAINER": "the container: its id, in a pod its name",
    "IN FLIGHT": "calls that have not returned yet, and the age of the oldest",
    "SHARE%": "share of the time of all calls with a known line",
    "LAYER": "runtime, driver, NCCL (R, D, N where it is narrow); a nested call (n) ran within another one",
    "C": "the thread made a CUDA call",
    "HISTOGRAM": "durations of the calls, from short to long; all rows share one range",
    "PREEMPTED BY": "threads that ran while it waited for a CPU",
}
_OTHER_HELP = (
    ("+8 python", "a folded branch: it and its 8 descendants, with sums; BLK% and p99 are of one of them"),
    ("TENS%", "GPUs: time with work on tensor cores, and SM% on SMs (Hopper or newer)"),
    ("DRAM%", "GPUs: used share of the memory bandwidth (Hopper or newer)"),
    ("THROTTLE", "GPUs: the limit of the clocks; highlighted for heat or power supply"),
    ("-  n/a", "unknown; never shown as 0"),
)
_MOUSE_HELP = (
    ("click", "a heading: sort by it, again: reverse; a row: select it; a tab: open it"),
    ("", "a key in [ ] or in the last line: press it; the verdict: open its chain"),
    ("wheel", "scrolls the pane under the pointer"),
    ("drag", "marks text; y or ^C copies it"),
)
Group = tuple[str, Sequence[tuple[str, str]]]


def help_page(groups: Iterable[Group], width: int, glyphs: Glyphs, search: str = "") -> list[Line]:
    """Return all active keys, then the meaning of the columns.

    Args:
        groups: Titles, each with keys and their actions.
        width: The width in columns.
        glyphs: The screen's glyphs.
        search: Only entries with this text.
    """
    sections: list[tuple[str, Sequence[tuple[str, str]], int, str]] = [
        *((title, entries, 10, "key") for title, entries in groups),
        ("Mouse", _MOUSE_HELP, 10, "key"),
        ("Filter [/]", FILTER_HELP, 15, "value"),
        ("Columns", (*COLUMNS_HELP.items(), *_OTHER_HELP), 15, "value"),
    ]
    storm = "at least 500 preemptions/s and 20 % of the time in the run queue, over 2 s"
    sections.append(("Marks", ((f"{glyphs.storm} storm", storm),), 15, "host"))
    out: list[Line] = []
    for title, every, column, token in sections:
        entries = [one for one in every if search.lower() in " ".join((title, *one)).lower()]
        if not entries:
            continue
        out += [((" ", ""),), ((f" {title}", "head"),)] if out else [((f" {title}", "head"),)]
        for name, text in entries:
            out += _entry(name, text, column, width, token)
    return [line for line in out if line[0][0]]


def _entry(name: str, text: str, column: int, width: int, token: str) -> list[Line]:
    lines = wrap(text, max(width - column - 4, 8))
    first: Line = ((f"   {name:<{column}}", token), (lines[0], ""))
    return [first, *(((" " * (column + 3) + line, ""),) for line in lines[1:])]


def problems_page(
    frame: Frame | None, failure: str | None, width: int, glyphs: Glyphs, reduced: Sequence[str] = ()
) -> list[Line]:
    """Return all problems, lost events, reasons of missing figures, and notes, in full."""
    out: list[Line] = []
    if failure:
        out += _paragraphs("The source failed", [failure], width, "alert", glyphs)
    if frame is None:
        return out or [((" nothing has been observed yet", "dim"),)]
    problems = list(frame.problems) or ["nothing: all probes work"]
    out += _paragraphs("Not observed", problems, width, "warn" if frame.problems else "dim", glyphs)
    if reduced:
        out += _paragraphs("Left out", reduced, width, "warn", glyphs)
    if frame.lost.events:
        kinds = [f"{count} {kind}" for kind, count in frame.lost.by_kind] or [f"{frame.lost.events} events"]
        out += _paragraphs("Lost since the start", kinds, width, "alert", glyphs)
    reasons = [f"GPU {gpu.index} {text}" for gpu in frame.gpus for text in gpu_text.reasons(gpu)]
    if reasons:
        out += _paragraphs("n/a of the GPUs", reasons, width, "unknown", glyphs)
    if frame.notes:
        out += _paragraphs("Newest notes", list(frame.notes), width, "dim", glyphs)
    if frame.driver:
        out += _paragraphs("Driver", [frame.driver], width, "dim", glyphs)
    return out


def _paragraphs(title: str, texts: Sequence[str], width: int, token: str, glyphs: Glyphs) -> list[Line]:
    out: list[Line] = [((f" {title}", "head"),)]
    for text in texts:
        out += paragraph(text, token, width, glyphs, indent=3, lead=f"{glyphs.dot} ", lead_token=token)
    return [*out, ((" ", ""),)]
