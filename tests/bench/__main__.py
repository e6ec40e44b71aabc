"""Command line of the benchmark."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.bench import (
    births,
    bystanders,
    calls,
    crowd,
    demo,
    explain,
    fleet,
    hour,
    inside,
    jump,
    keys,
    layers,
    lines,
    long,
    memory,
    pipeline,
    rest,
    screen,
    start,
    tools,
    watching,
    why,
)
from tests.bench.rows import Row, exceeded, heading, line

GROUPS: dict[str, Callable[[Path], list[Row]]] = {
    "calls": calls.rows,
    "layers": layers.rows,
    "lines": lines.rows,
    "bystanders": bystanders.rows,
    "tools": tools.rows,
    "reader": pipeline.rows,
    "recorder": demo.recorder,
    "slowdown": demo.slowdown,
    "screen": screen.rows,
    "keys": keys.rows,
    "memory": memory.rows,
    "crowd": crowd.rows,
    "rest": rest.rows,
    "start": start.rows,
    "hour": hour.rows,
    "inside": inside.rows,
    "explanation": why.rows,
    "births": births.rows,
    "explain": explain.rows,
    "fleet": fleet.rows,
    "long": long.rows,
    "jump": jump.rows,
    "watching": watching.rows,
    "left open": watching.left_open,
}


def main() -> int:
    """Measures and prints; 1 when a bound is exceeded, 2 when it cannot measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="What gputop costs.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--slack", type=float, default=1.0, metavar="X", help="multiply the bounds by X (1)")
    parser.add_argument("--only", choices=GROUPS, action="append", help="only these figures")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("eBPF needs root")
    found: list[Row] = []
    load = os.getloadavg()[0]
    if not options.json:
        print(f"load before: {load:.1f} on {os.cpu_count()} CPUs", heading(), sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="gputop-bench-") as folder:
        for name in options.only or GROUPS:
            for row in GROUPS[name](Path(folder)):
                found.append(replace(row, slack=options.slack))
                if not options.json:
                    print(line(found[-1]), flush=True)
    if options.json:
        facts = {"load_before": load, "slack": options.slack, "rows": [row.to_json() for row in found]}
        print(json.dumps(facts))
    return 1 if exceeded(found) else 0


if __name__ == "__main__":
    try:
        status = main()
    except Exception:  # a status of its own: 1 says that figures are too high
        traceback.print_exc()
        status = 2
    sys.exit(status)
