"""A recording whose every name was chosen by somebody who wants to harm who reads it."""

from __future__ import annotations

from pathlib import Path

from probes.source import FRAMES, NOTE, PROBLEM, Sample
from replay.writer import SessionWriter
from tests import items

NAMES = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    '"onmouseover="alert(3)',
    "a\x1b[2J\x07\x00b",
    "\u202egnp.exe\u2066",
    '=HYPERLINK("http://x")',
    "+1+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r\n=2",
    "caf\udce9 \udcff",
    "x" * 4096,
    "a,b;c\"d'e",
    "{{7*7}}${7*7}",
    "]]>&amp;<!--",
)


def write(path: Path) -> Path:
    """Each name is that of a process, a thread, a file and a function; each process calls CUDA."""
    writer = SessionWriter(path, {**items.HEADER, "machine": {"host": NAMES[0], "kernel": NAMES[1]}})
    writer.write(items.apis())
    for number, name in enumerate(NAMES):
        pid, stack = 100 + number, 1_000 + number
        writer.write(items.process(pid, name=name, command=name))
        writer.write(items.names(items.START, {pid: name}, pid))
        frames = [[name, number, name], [f"/home/{name}", 0, name]]
        writer.write(Sample(FRAMES, items.START, {"pid": [pid], "stack": [stack], "frames": [frames]}))
        for step in range(20):
            at = items.START + step * 20 * items.MS + number * items.MS
            more = {"pid": pid, "tid": pid, "stack": stack}
            writer.write(items.call(at + 10_000, 5_000, **more))
            writer.write(items.call(at + 600_000, 500_000, "cudaDeviceSynchronize", **more))
    writer.write(Sample(NOTE, items.START, {"text": NAMES[0], "layer": "runtime"}))
    writer.write(Sample(PROBLEM, items.START, {"text": NAMES[1] + NAMES[3]}))
    writer.write(items.mark(1, items.START + items.SECOND))
    writer.close()
    return path
