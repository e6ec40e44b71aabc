"""``make stories ARGS="[--seeds 1,2,3] [--busy] [STORY…]"``: runs the stories, prints or writes the table."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.stories import chains, ends, installed, live, reported
from tests.stories.answer import AnswerError
from tests.stories.catalogue import PAIRS, STORIES, Pair, Story
from tests.stories.cells import holds, put
from tests.stories.exact import Exactness, exactness, section
from tests.stories.judge import Verdict, changed, judged
from tests.stories.recording import Run, StoryError, busy_processors, record
from tests.stories.table import Outcome, change_row, page, story_row, summary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stories.md"
Catalogue = tuple[dict[str, Story], tuple[Pair, ...]]
BUSY = 2  # processes beside
QUIET_TITLE, BUSY_TITLE = "Quiet processors", f"Busy processors ({BUSY} processes compute beside)"
TRIES = 2


def chosen(stories: dict[str, Story], names: list[str], backend: str) -> list[Story]:
    """The stories whose name begins with one of these, in their order; all that run there without."""
    found = [
        story
        for story in stories.values()
        if (not names or story.name.startswith(tuple(names))) and (backend == "cuda" or not story.needs_wheel)
    ]
    if not found:
        raise SystemExit(f"no such story; there are: {' '.join(stories)}")
    return found


def kept(story: Story, seed: int, folder: Path) -> Run:
    """A run of before."""
    said = json.loads((folder / "clock.json").read_text())
    return Run(story, seed, folder, tuple(said["clocks"]), said["delayed"])


def recorded(
    story: Story, seed: int, folder: Path, seconds: float, backend: str, flags: tuple[str, ...] = ()
) -> Run:
    """Runs a story; once more if the program failed."""
    for left in range(TRIES - 1, -1, -1):
        try:
            return record(story, seed, folder, seconds, backend, flags)
        except StoryError:
            if not left:
                raise
    raise AssertionError


def run_of(story: Story, seed: int, folder: Path, options: argparse.Namespace, *, busy: bool) -> Run:
    """That of before, or a new one."""
    place = folder / story.name / f"{'busy' if busy else 'seed'}-{seed}"
    if options.again:
        return kept(story, seed, place)
    with busy_processors(BUSY) if busy else contextlib.nullcontext():
        flags = ("--inside",) if options.inside else ()
        return recorded(story, seed, place, options.seconds, options.backend, flags)


def judge_all(
    outcome: Outcome, options: argparse.Namespace, folder: Path, *, busy: bool
) -> list[tuple[Verdict, Exactness]]:
    """Runs and judges under one condition; returns how exact each is with ``--inside``."""
    exact: list[tuple[Verdict, Exactness]] = []
    for seed in options.seeds:
        told: dict[str, Verdict] = {}
        for story in chosen(STORIES, options.names, options.backend):
            try:
                told[story.name] = judged(run_of(story, seed, folder, options, busy=busy))
            except (StoryError, AnswerError, OSError) as error:
                outcome.failures.append(f"{story.name}, seed {seed}: {error}")
                print(outcome.failures[-1], flush=True)
                continue
            outcome.verdicts.append(told[story.name])
            print(story_row(told[story.name]), flush=True)
            if options.inside:
                found = exactness(told[story.name].run)
                exact.append((told[story.name], found))
                print(f"  {found.text()}", flush=True)
                if not found.holds:
                    outcome.failures.append(f"{story.name}, seed {seed}: {found.text()}")
        for pair in PAIRS:
            if pair.before in told and pair.after in told:
                outcome.changes.append(changed(pair, told[pair.before], told[pair.after]))
                print(change_row(outcome.changes[-1]), flush=True)
    return exact


def judge_ends(
    told: ends.Ends, catalogue: Catalogue, options: argparse.Namespace, folder: Path, *, busy: bool
) -> None:
    """Runs programs whose chain leads elsewhere, and holds its end against the truth."""
    stories, pairs = catalogue
    for seed in options.seeds:
        done: dict[str, ends.Told] = {}
        for story in chosen(stories, options.names, options.backend):
            try:
                done[story.name] = ends.told(run_of(story, seed, folder, options, busy=busy))
            except (StoryError, AnswerError, OSError) as error:
                told.failures.append(f"{story.name}, seed {seed}: {error}")
                print(told.failures[-1], flush=True)
                continue
            told.told.append(done[story.name])
            print(ends.told_row(told.told[-1]), flush=True)
        for pair in pairs:
            if pair.before in done and pair.after in done:
                told.changes.append(ends.changed(pair, done[pair.before], done[pair.after]))
                print(ends.change_row(told.changes[-1]), flush=True)


def of_ends(title: str, catalogue: Catalogue, options: argparse.Namespace, folder: Path) -> int:
    """The run with ``--chains`` or ``--shared``."""
    outcomes = []
    for busy in (False, True) if options.busy else (False,):
        told = ends.Ends(BUSY_TITLE if busy else QUIET_TITLE)
        judge_ends(told, catalogue, options, folder, busy=busy)
        print("\n".join(["", told.title, *(f"{what:45} {count}" for what, count in ends.summary(told))]))
        outcomes.append(told)
    if options.write:
        put(options.write, ends.section(title, outcomes))
    return int(not all(one.holds for one in outcomes))


def of_live(title: str, stories: dict[str, Story], options: argparse.Namespace, folder: Path) -> int:
    """The same programs before their fix on the live screen."""
    lives, failures = [], []
    for story in chosen(stories, options.names, options.backend):
        if not story.end:
            continue
        try:
            lives.append(live.watched(story, folder / "live" / story.name, backend=options.backend))
        except (StoryError, OSError, TimeoutError) as error:
            failures.append(f"{story.name}: {error}")
            print(failures[-1], flush=True)
            continue
        print(live.live_row(lives[-1]), flush=True)
    if options.write:
        put(options.write, live.section(f"{title}: live", lives, failures))
    return int(bool(failures) or not all(one.right for one in lives))


def main() -> int:
    """Runs it; 0 when every requirement holds."""
    parser = argparse.ArgumentParser(prog="make stories")
    parser.add_argument(
        "--seeds",
        default=[1],
        type=lambda text: [int(seed) for seed in text.split(",")],
        help="apart by commas (1)",
    )
    parser.add_argument(
        "--inside", action="store_true", help="record with --inside: idle time and rows must be the trace's"
    )
    parser.add_argument("--busy", action="store_true", help="on busy processors too")
    parser.add_argument("--seconds", default=5.0, type=float, help="how long each program's loop runs (5)")
    parser.add_argument(
        "--backend",
        choices=("cuda", "shim"),
        default="cuda" if installed.wheel() else "shim",
        help="a CUDA wheel (make torch-cuda; the default where it is there), or the CPU build and a shim",
    )
    parser.add_argument("--keep", type=Path, help="leave recordings, traces and clocks in this folder")
    parser.add_argument("--again", action="store_true", help="judge what an earlier run left in --keep")
    parser.add_argument(
        "--write", nargs="?", type=Path, const=PAGE, metavar="FILE", help=f"write the page ({PAGE.name})"
    )
    parser.add_argument(
        "--chains", action="store_true", help="the programs whose GPU waits for something else instead"
    )
    parser.add_argument(
        "--shared",
        action="store_true",
        help="the programs of ../shared/programs instead, which may be missing",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="with one of these two: the live screen, 30 s each",
    )
    parser.add_argument("names", nargs="*", help="how the stories' names begin")
    options = parser.parse_args()
    if options.live and not (options.chains or options.shared):
        parser.error("--live goes with --chains or --shared")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="gputop-stories-", dir="/var/tmp"))
    outcomes = [Outcome(QUIET_TITLE)]
    try:
        if options.shared:
            if not reported.FOLDER.is_dir():
                raise SystemExit(f"{reported.FOLDER} is not there")
            if options.live:
                return of_live(reported.TITLE, reported.STORIES, options, folder)
            return of_ends(reported.TITLE, (reported.STORIES, reported.PAIRS), options, folder)
        if options.chains:
            if options.live:
                return of_live(chains.TITLE, chains.STORIES, options, folder)
            return of_ends(chains.TITLE, (chains.STORIES, chains.PAIRS), options, folder)
        exact = judge_all(outcomes[0], options, folder, busy=False)
        if options.busy:
            outcomes.append(Outcome(BUSY_TITLE))
            judge_all(outcomes[1], options, folder, busy=True)
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    for outcome in outcomes:
        print(f"\n{outcome.title}")
        for requirement, held in summary(outcome):
            print(f"{requirement:45} {held}")
    if options.write:
        put(options.write, section(exact, outcomes[0].failures) if options.inside else page(outcomes))
    return int(any(outcome.failures or not holds(summary(outcome)) for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
