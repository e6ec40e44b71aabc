"""``make fault-suite ARGS="[--seeds 1,2,3] [NAME…]"``: runs the suite, prints the table, holds the gates."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time

from tests.faults.bench import Bench, on_disk
from tests.faults.judge import Verdict, disturbed
from tests.faults.scenario import MS
from tests.faults.suite import damaged, direct, drawn, robust, verdicts

HEAD = ("scenario", "injected", "found", "ms truth", "ms said", "level", "wrong")
WIDTHS = (9, 9, 12, 13, 20, 16, 0)


def line(cells: tuple[str, ...]) -> str:
    """A row of the table."""
    return " ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def truth_of(one: Verdict) -> str:
    """The truth's larger parts, and what was reported of each cause."""
    truth = {cause: f"{ns / MS:.1f}" for cause, ns in one.run.truth.causes.items() if ns > MS / 2}
    said = {part["cause"]: f"{part['loss_ns']['lower'] / MS:.1f}" for part in one.said.get("findings", [])}
    rest = {
        key: round(one.said[key] / MS, 1)
        for key in ("small_ns", "unexplained_ns", "unknown_ns")
        if key in one.said
    }
    idle, span = one.run.truth.idle_ns / MS, one.run.truth.span_ns / MS
    return f"idle {idle:.1f} of {span:.1f} truth {truth} said {said} {rest}"


def gates(all_verdicts: list[Verdict]) -> list[str]:
    """The gates that do not hold."""
    single = [
        one for one in all_verdicts if one.run.scenario.id.startswith("T") and one.run.scenario.expected
    ]
    wrong = [one.run.scenario.id for one in single if not one.first]
    failed = []
    if len(wrong) * 24 > len(single):
        failed.append(
            f"first cause right in {len(single) - len(wrong)} of {len(single)}: not {' '.join(wrong)}"
        )
    failed += [
        f"{one.run.scenario.id}: {miss}"
        for one in all_verdicts
        for miss in one.misses
        if one not in single or not miss.startswith("first:")
    ]
    return failed


def endure(bench: Bench, seed: int) -> list[str]:
    """R1 to R9, printed; what is wrong with them."""
    wrong = []
    for one in robust(bench, seed):
        truth, idle = one.run.truth.idle_ns / MS, one.said["gpu_idle_ns"]
        bounds = f"{idle['lower'] / MS:.1f}..{idle['upper'] / MS:.1f} ms idle, in truth {truth:.1f}"
        found = " ".join(f"{part['cause']}({part['level']})" for part in one.said["findings"])
        denied = "" if one.said["coverage"] else " coverage denied"
        name = one.run.scenario.id
        print(
            f"{name:9} {one.run.scenario.title}: {bounds} {found}{denied} {'; '.join(one.misses)}", flush=True
        )
        wrong += [f"{name}: {miss}" for miss in one.misses]
    for one in direct(bench, seed):
        print(line(one.row), flush=True)
        wrong += [f"direct {one.run.scenario.id}: {miss}" for miss in one.misses]
    for text, misses in damaged(bench, seed):
        print(f"R1        {text} {'; '.join(misses)}", flush=True)
        wrong += [f"R1: {miss}" for miss in misses]
    return wrong


def main() -> int:
    """Runs it; 0 when all gates hold."""
    parser = argparse.ArgumentParser(prog="make fault-suite")
    parser.add_argument("--seeds", default="", help="numbers apart by commas; three random ones without")
    parser.add_argument("--keep", action="store_true", help="leave recordings and diaries")
    parser.add_argument("--verbose", action="store_true", help="print the parameters too")
    parser.add_argument("names", nargs="*", help="scenarios; R for R1 to R9 alone")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",") if seed] or [
        random.randrange(10**6) for _ in range(3)
    ]
    directory = on_disk()
    status = 0
    try:
        bench = Bench(directory)
        for seed in seeds:
            began = time.monotonic()
            print(f"seed {seed}\n{line(HEAD)}", flush=True)
            judged = []
            chosen = [name for name in options.names if name != "R"]
            for one in verdicts(bench, drawn(seed, chosen), str(seed)) if chosen or not options.names else ():
                judged.append(one)
                print(line(one.row), flush=True)
                if options.verbose or one.misses:
                    print(f"          {one.run.scenario.parameters} {disturbed(one.run)}", flush=True)
                    print(f"          {truth_of(one)}", flush=True)
            failed = gates(judged)
            if not options.names or "R" in options.names:
                failed += endure(bench, seed)
            status |= bool(failed)
            print(f"seed {seed}: {len(judged)} runs, {len(failed)} wrong, {time.monotonic() - began:.0f} s\n")
    finally:
        if options.keep:
            print(directory)
        else:
            shutil.rmtree(directory)
    return status


if __name__ == "__main__":
    sys.exit(main())
