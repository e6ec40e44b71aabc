"""``make stories ARGS="[--seeds 1,2,3] [--busy] [STORY…]"``: runs the stories, prints or writes the table."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.stories import installed
from tests.stories.answer import AnswerError
from tests.stories.catalogue import PAIRS, STORIES, Story
from tests.stories.judge import Verdict, changed, judged
from tests.stories.recording import Run, StoryError, busy_processors, record
from tests.stories.table import Outcome, change_row, page, story_row, summary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stories.md"
BUSY = 2  # processes beside
TRIES = 2


def chosen(names: list[str], backend: str) -> list[Story]:
    """The stories whose name begins with one of these, in their order; all that run there without."""
    found = [
        story
        for story in STORIES.values()
        if (not names or story.name.startswith(tuple(names))) and (backend == "cuda" or not story.needs_wheel)
    ]
    if not found:
        raise SystemExit(f"no such story; there are: {' '.join(STORIES)}")
    return found


def kept(story: Story, seed: int, folder: Path) -> Run:
    """A run of before."""
    clocks = json.loads((folder / "clock.json").read_text())
    return Run(story, seed, folder, tuple({"warm_up": 5, "pid": 0} | c for c in clocks))


def recorded(story: Story, seed: int, folder: Path, seconds: float, backend: str) -> Run:
    """Runs a story; once more if the program failed."""
    for left in range(TRIES - 1, -1, -1):
        try:
            return record(story, seed, folder, seconds, backend)
        except StoryError:
            if not left:
                raise
    raise AssertionError


def judge_all(outcome: Outcome, options: argparse.Namespace, folder: Path, *, busy: bool) -> None:
    """Runs and judges under one condition."""
    for seed in options.seeds:
        told: dict[str, Verdict] = {}
        for story in chosen(options.names, options.backend):
            place = folder / story.name / f"{'busy' if busy else 'seed'}-{seed}"
            try:
                if options.again:
                    run = kept(story, seed, place)
                else:
                    with busy_processors(BUSY) if busy else contextlib.nullcontext():
                        run = recorded(story, seed, place, options.seconds, options.backend)
                told[story.name] = judged(run)
            except (StoryError, AnswerError, OSError) as error:
                outcome.failures.append(f"{story.name}, seed {seed}: {error}")
                print(outcome.failures[-1], flush=True)
                continue
            outcome.verdicts.append(told[story.name])
            print(story_row(told[story.name]), flush=True)
        for pair in PAIRS:
            if pair.before in told and pair.after in told:
                outcome.changes.append(changed(pair, told[pair.before], told[pair.after]))
                print(change_row(outcome.changes[-1]), flush=True)


def main() -> int:
    """Runs it; 0 when every requirement holds."""
    parser = argparse.ArgumentParser(prog="make stories")
    parser.add_argument(
        "--seeds",
        default=[1],
        type=lambda text: [int(seed) for seed in text.split(",")],
        help="apart by commas (1)",
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
    parser.add_argument("names", nargs="*", help="how the stories' names begin")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="gputop-stories-", dir="/var/tmp"))
    outcomes = [Outcome("Quiet processors")]
    try:
        judge_all(outcomes[0], options, folder, busy=False)
        if options.busy:
            outcomes.append(Outcome(f"Busy processors ({BUSY} processes compute beside)"))
            judge_all(outcomes[1], options, folder, busy=True)
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    for outcome in outcomes:
        print(f"\n{outcome.title}")
        for requirement, held in summary(outcome):
            print(f"{requirement:45} {held}")
    if options.write:
        options.write.write_text(page(outcomes))
    counts = [held.split(" of ") for outcome in outcomes for _, held in summary(outcome)]
    return int(any(outcome.failures for outcome in outcomes) or any(held != of for held, of in counts))


if __name__ == "__main__":
    sys.exit(main())
