#!/usr/bin/env python3
"""Draws the screen over the recordings, and over made-up machines that no recording here shows.

``pictures.py`` draws the README's choice, one SVG a picture in docs/pictures/; ``pictures.py FOLDER`` draws
every subject in every size there, as SVG and, where there is a browser, as PNG. An SVG holds text, and names
no font to be fetched.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from gputop.analysis.chains.call_forms import TITLES, advice_of
from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.engine.frame import Frame
from gputop.playback.feed import Explained, Feed
from gputop.playback.player import ReplayFeed
from gputop.ui.app import GputopApp
from gputop.ui.model.config import Startup
from replay.reader import SessionReader

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.moving import joined  # noqa: E402
from tests import fake_frames as fake  # noqa: E402
from tests import fake_reports as why  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SIZES = ((80, 24), (120, 40), (200, 50), (250, 70))
PATIENCE_S = 30.0
BEFORE_END = 4  # marks: later the programs have ended
TICKS = 500  # of a made-up machine, four a second: its graphs are full
_FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_INTERPRETER = re.compile(r"((?:/[\w.-]+)+)/bin/python")  # of the machine that made the recording


@dataclass(frozen=True)
class Picture:
    """A subject, the size of the terminal, and the keys pressed before it is drawn."""

    name: str
    of: str
    size: tuple[int, int]
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One picture of the moving one: the keys before it, its title, and how long it is shown."""

    of: str
    keys: tuple[str, ...]
    title: str
    seconds: float


WHY, WHY_SIZE = "why", (110, 32)
WHY_FROM = 13  # marks before the end of a recording at which it begins
_FORWARD = ("]",) * 3
WHY_STEPS = (
    Step("dataloader", (), "gputop replay dataloader.msgpack", 2.0),
    Step("dataloader", _FORWARD, "WHY: what the GPU waits for, how certain that is, what a fix saves", 2.0),
    Step("dataloader", _FORWARD, "WHY: what the GPU waits for, how certain that is, what a fix saves", 2.0),
    Step("dataloader", ("enter",), "Enter: from the idle GPU to the cause, and what to change", 6.0),
    Step("dataloader-fixed", ("]",) * 9, "after the fix: gputop replay dataloader-fixed.msgpack", 4.0),
)
README = (
    Picture("screen", "dataloader-workers", (120, 40)),
    Picture("wide", "dataloader-workers", (200, 50)),
    Picture("chain", "dataloader-workers", (120, 30), ("enter",)),
    Picture("call", "storm", (120, 30), ("up", "enter", "enter")),
    Picture("small", "numpy-sync", (80, 24)),
    Picture("healthy", "healthy", (120, 40)),
    Picture("eight-gpus", "eight-gpus", (120, 40)),
    Picture("without-root", "without-root", (80, 24)),
)
# name of a picture -> its recording or made-up machine
SUBJECTS = {
    "input-bound": "dataloader",
    "sync-bound": "numpy-sync",
    "compute-bound": "numpy-sync-fixed",
    "healthy": "healthy",
    "three-processes": "three-processes",
    "eight-gpus": "eight-gpus",
    "storm": "storm",
    "without-cuda": "without-cuda",
    "without-root": "without-root",
}


@dataclass(frozen=True)
class Machine:
    """A made-up machine: so many GPUs and processes, and its facts."""

    gpus: int
    processes: int
    storm: bool = False
    traced: bool = True
    problems: tuple[str, ...] = ()
    explained: Callable[[int], Explained] | None = None


def _of_many(end_ns: int, gpus: int) -> Explained:
    """Some of the GPUs are idle for longer than others, all by one cause."""
    accounts = [why.account(2_500 + 500 * ((5 * index) % 8), 300) for index in range(gpus)]
    spans = tuple(
        why.GpuSpan(f"GPU {index}", 10 * why.S, one.idle, one) for index, one in enumerate(accounts)
    )
    lost = sum(one.proved_ns for one in accounts) * 4 // 5
    found = why.finding(
        loss=why.Range(lost, lost),
        title=TITLES["read"].format(often="every step"),
        advice=advice_of("read", size="391K", times="8.0 times a step"),
        line=SourceLine("/home/user/train.py", 88, "forward"),
    )
    told = why.explained(
        found, end_ns=end_ns, gpus=spans, span_ns=gpus * 10 * why.S, diagnosis=why.diagnosis()
    )
    return Explained(told.report, told.end_ns, told.start_ns, lanes=why.lanes(end_ns, gpus=gpus))


_NO_DRIVER = "no GPU figures: no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)"
_NO_ROOT = "no eBPF without root: CUDA calls and preempting threads are not shown; to see them: sudo gputop"
MACHINES = {
    "three-processes": Machine(1, 3, explained=lambda end_ns: _of_many(end_ns, 1)),
    "eight-gpus": Machine(8, 12, explained=lambda end_ns: _of_many(end_ns, 8)),
    "without-cuda": Machine(0, 0, problems=(_NO_DRIVER,)),
    "without-root": Machine(2, 4, traced=False, problems=(_NO_ROOT,)),
}


def frame_of(machine: Machine, tick: int) -> Frame:
    """The frame at a tick."""
    made = fake.frame(tick, gpus=machine.gpus, processes=machine.processes, storm=machine.storm)
    made = replace(made, calls_observed=machine.traced, problems=machine.problems)
    if not machine.gpus:
        made = replace(made, driver="", calls_per_second=0.0, events_per_second=0.0)
    if machine.traced:
        return made
    unseen = {"calls": (), "top_api": "", "calls_per_second": 0.0}
    return replace(made, processes=tuple(replace(row, **unseen) for row in made.processes))


async def drawn(picture: Picture) -> str:
    """The picture as SVG."""
    if picture.of in MACHINES:
        return await _drawn_machine(picture, MACHINES[picture.of])
    reader = SessionReader(ROOT / "recordings" / f"{picture.of}.msgpack")
    feed = ReplayFeed(reader, len(reader.marks) - BEFORE_END, playing=False)
    feed.start()
    try:
        app = GputopApp(feed, Startup("replay", title=f"{picture.of}.msgpack"))
        return await _drawn(app, feed, picture, f"gputop replay recordings/{picture.of}.msgpack")
    finally:
        feed.close()


async def moving() -> str:
    """A recording forward to its verdict, the way from there to the cause, and the program after its fix."""
    pictures: list[str] = []
    for name, steps in groupby(WHY_STEPS, lambda step: step.of):
        reader = SessionReader(ROOT / "recordings" / f"{name}.msgpack")
        feed = ReplayFeed(reader, len(reader.marks) - WHY_FROM, playing=False)
        feed.start()
        try:
            app = GputopApp(feed, Startup("replay", title=f"{name}.msgpack"))
            async with app.run_test(size=WHY_SIZE) as pilot:
                for step in steps:
                    await pilot.press(*step.keys)
                    await _explained(feed)
                    app.poll()
                    await pilot.pause()
                    pictures.append(_anonymous(app.export_screenshot(title=step.title)))
        finally:
            feed.close()
    return joined(pictures, [step.seconds for step in WHY_STEPS])


async def _explained(feed: Feed) -> None:
    for _ in range(int(PATIENCE_S / 0.1)):
        if feed.explained().report is not None:
            return
        await asyncio.sleep(0.1)


async def _drawn(app: GputopApp, feed: Feed, picture: Picture, title: str) -> str:
    async with app.run_test(size=picture.size) as pilot:
        await _explained(feed)
        app.poll()
        await pilot.press(*picture.keys)
        await pilot.pause()
        return _anonymous(app.export_screenshot(title=title))


async def _drawn_machine(picture: Picture, machine: Machine) -> str:
    feed = fake.FakeFeed(frame_of(machine, 0))
    chosen = frame_of(machine, 0).processes[0].pid if machine.explained else None
    app = GputopApp(feed, Startup(rate_hz=0.001, selected_pid=chosen))
    async with app.run_test(size=picture.size) as pilot:
        for tick in range(1, TICKS):
            feed.newest = frame_of(machine, tick)
            app.view.show(feed.newest)
        feed.newest = last = frame_of(machine, TICKS)
        if machine.explained is not None:
            feed.why = machine.explained(last.time_ns)
        app.poll()
        await pilot.press(*picture.keys)
        await pilot.pause()
        app.show()  # the size found by one frame is known to the next
        await pilot.pause()
        return _anonymous(app.export_screenshot(title="gputop"))


def _anonymous(svg: str) -> str:
    return _INTERPRETER.sub(_somewhere, _FONT_FACES.sub("", svg))


def _somewhere(path: re.Match[str]) -> str:
    """A path as long, of no machine that there is."""
    return "/home/user/venvs/train".ljust(len(path[1]), "-")[: len(path[1])] + "/bin/python"


def rasterize(folder: Path) -> None:
    """A PNG beside each SVG of a folder; none where there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("no PNG: there is no chromium (apt-get install chromium)\n")
        return
    with suppress(ImportError):
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for file in sorted(folder.glob("*.svg")):
                text = file.read_text()
                width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)[0]
                page = browser.new_page(
                    viewport={"width": int(float(width)) + 1, "height": int(float(height)) + 1}
                )
                page.set_content(f"<body style='margin:0'>{text}</body>")
                page.screenshot(path=str(file.with_suffix(".png")))
                page.close()
            browser.close()


def main(words: list[str]) -> None:
    """Draws the README's choice, or all into a folder."""
    folder = Path(words[0]) if words else PICTURES
    chosen = README
    if words:
        chosen = tuple(
            Picture(f"{name}-{size[0]}x{size[1]}", of, size)
            for name, of in SUBJECTS.items()
            for size in SIZES
        )
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    os.environ.pop("NO_COLOR", None)
    for picture in chosen:
        (folder / f"{picture.name}.svg").write_text(asyncio.run(drawn(picture)), encoding="utf-8")
    if words:
        rasterize(folder)
    else:
        (folder / f"{WHY}.svg").write_text(asyncio.run(moving()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
