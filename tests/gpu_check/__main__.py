"""``gpu-check``: each part is kept as soon as it is done, and a second start goes on with what is missing."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gputop.errors import GputopError
from gputop.process import c_build
from tests.gpu_check import calls, nvml, stories
from tests.gpu_check.machine import Machine, PartError
from tests.gpu_check.page import into, page, summary, write
from tests.gpu_check.results_folder import RESULTS, claim, tidy

KEPT = ("loader", "numpy-sync", "device-copies", "launches", "server")  # whose recordings before the fix stay
MOST_S = 480.0


def parts(machine: Machine, seconds: float, names: list[str]) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is done, by name, the most telling first."""
    found: dict[str, Callable[[], dict[str, Any]]] = {
        "machine": lambda: machine.facts,
        "check": partial(calls.check, machine),
        "counts": partial(calls.counts, machine),
        **{story.name: partial(stories.run, machine, story, seconds) for story in stories.STORIES},
        "constants": partial(calls.constants, machine),
        "nvml": partial(nvml.windows, machine),
        "costs": partial(calls.costs, machine),
        "slowdown": lambda: {name: calls.slowdown(machine, name) for name in ("launches", "compute")},
    }
    return {name: part for name, part in found.items() if not names or name in names}


def use_simulated(folder: Path) -> None:
    """Puts the kit's simulated GPU where gputop keeps it, without a compiler; NVML's state in the folder."""
    os.environ["SIMGPU_STATE"] = str(folder / "state")
    for packed in Path(sys.prefix).glob("simgpu/simgpu-*"):
        target = c_build.ROOT_CACHE / packed.name
        if not target.exists():
            c_build.ROOT_CACHE.mkdir(parents=True, exist_ok=True, mode=0o755)
            shutil.copytree(packed, target)


def main() -> int:
    """Runs what is missing; 0 when all parts ran."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("gpu-results"), help="folder of the results"
    )
    parser.add_argument("--python", default="", help="the Python that has PyTorch with CUDA")
    parser.add_argument("--simulated", action="store_true", help="use the simulated GPU")
    parser.add_argument("--seconds", type=float, default=stories.RECORD_S, help="recorded of each program")
    parser.add_argument(
        "--most", type=float, default=MOST_S, help="seconds after which no further part begins"
    )
    parser.add_argument("parts", nargs="*", help="these parts only, again")
    parser.add_argument("--page", type=Path, help="only write the results of these folders into a page")
    options = parser.parse_args()
    if options.page:
        found = [json.loads((Path(folder) / "results.json").read_text("utf-8")) for folder in options.parts]
        options.page.write_text(into(options.page.read_text(encoding="utf-8"), found), encoding="utf-8")
        return 0
    if refused := claim(options.output):
        print(f"gpu-check: {refused}", file=sys.stderr)
        return 1
    if options.simulated:
        use_simulated(options.output.resolve())
    machine = Machine(options.python, options.simulated, options.output.resolve())
    results: dict[str, Any] = {}
    if (options.output / "results.json").exists():
        results = json.loads((options.output / "results.json").read_text(encoding="utf-8"))
    began = time.monotonic()
    for name, part in parts(machine, options.seconds, options.parts).items():
        if "why" not in results.get(name, {"why": ""}) and name not in options.parts:
            continue
        if time.monotonic() - began > options.most:
            results[name] = {"why": f"no time was left after {options.most:.0f} s; start it again"}
        else:
            try:
                results[name] = part()
            except (
                PartError,
                GputopError,
                OSError,
                ValueError,
                KeyError,
                subprocess.SubprocessError,
            ) as error:
                kind = "" if isinstance(error, PartError) else f"{type(error).__name__}: "
                results[name] = {"why": f"{kind}{error}"}
        print(f"{time.monotonic() - began:5.0f} s  {name}: {results[name].get('why', 'done')}", flush=True)
        write(options.output, results)
        if name == "machine" and "why" in results[name]:
            print(f"gpu-check: {results[name]['why']}", file=sys.stderr)
            return 1
    tidy(options.output, {f"{name}-before.msgpack" for name in KEPT} | {RESULTS})
    print(page(results))
    for column, good, whole in summary(results):
        print(f"{column}: {good} of {whole}")
    return 0 if all("why" not in part for part in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
