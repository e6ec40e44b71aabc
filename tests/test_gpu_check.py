"""The kit for real GPUs: its arithmetic, and what it keeps of parts that do not run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu_check import calls, nvml, stories
from tests.gpu_check.page import into, page, summary
from tests.gpu_check.truth import Profile, busy_ns
from tests.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[1]


def test_busy_time_counts_overlapping_work_once():
    spans = np.array([(0.0, 10.0), (5.0, 20.0), (6.0, 8.0), (30.0, 35.0)])
    assert busy_ns(spans) == 25.0
    assert busy_ns(spans[:0]) == 0.0


def _event(cat: str, name: str, ts: float, dur: float, correlation: int) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": {"correlation": correlation}}


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    """In µs: a kernel 4 after its launch, one behind it, a wait that ends 3 later, a wait for nothing."""
    rows = [
        _event("cuda_runtime", "cudaLaunchKernel", 10, 5, 1),
        _event("kernel", "a", 19, 100, 1),
        _event("cuda_runtime", "cudaLaunchKernel", 20, 5, 2),
        _event("kernel", "b", 120, 50, 2),
        _event("cuda_runtime", "cudaDeviceSynchronize", 30, 143, 3),
        _event("cuda_runtime", "cudaDeviceSynchronize", 200, 2, 4),
        _event("gpu_memcpy", "copy", 300, 7, 5),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    return Profile.read(path)


def test_only_a_launch_to_a_free_gpu_shows_how_long_a_kernel_takes_to_begin(profile: Profile):
    assert profile.starts_ns().tolist() == [4000.0]


def test_a_wait_shows_how_long_it_takes_to_return(profile: Profile):
    assert profile.ends_ns().tolist() == [3000.0]


def test_a_wait_for_nothing_is_known_by_the_work_around_it(profile: Profile):
    assert profile.idle_waits_ns().tolist() == [2000.0]


@pytest.mark.parametrize(("window_ms", "delay_ms"), [(100, 0), (200, 150), (1000, 60)])
def test_the_window_and_the_delay_of_nvml_are_found(window_ms: int, delay_ms: int):
    spans = np.array([(second * 2_000_000_000, second * 2_000_000_000 + 10**9) for second in range(6)])

    def share(end: int) -> float:
        begin = end - window_ms * 1_000_000
        inside = np.minimum(spans[:, 1], end) - np.maximum(spans[:, 0], begin)
        return float(np.maximum(inside, 0).sum()) / (window_ms * 1e6)

    now = np.arange(0, spans[-1, 1], 10_000_000)
    samples = np.array([(at, round(100 * share(at - delay_ms * 1_000_000))) for at in now.tolist()])
    window, delay, error = nvml.best(samples, spans)
    assert abs(window / 1e6 - window_ms) <= 20
    assert abs(delay / 1e6 - delay_ms) <= 20
    assert error < 0.02


def test_what_a_library_imports_is_what_nm_says(tmp_path: Path):
    source = tmp_path / "a.c"
    source.write_text(
        "int cudaMalloc(void **, unsigned long); int cuInit(unsigned); int custom(void);\n"
        "int f(void) { void *p; return cudaMalloc(&p, 1) + cuInit(0) + custom(); }\n"
    )
    library = tmp_path / "liba.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert calls.imported(library) == {"cudaMalloc", "cuInit"}


def _said(**more: Any) -> dict[str, Any]:
    usual = {
        "idle": {"lower": 0.5, "estimate": 0.62, "upper": 0.9},
        "class": "sync",
        "verdict": "Sync-bound: x. More.",
    }
    line = ["training.py", 1, "masked"]
    return {**usual, "cause": "C02", "level": "proved", "lines": [line], "max_gain_ns": 600, **more}


def _side(unit_ns: float, idle: float, said: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    if said is not None:
        more["idle"] = said
    return {"unit_ns": unit_ns, "units": 10, "idle": idle, "said": _said(**more), "live": {}}


def test_a_story_is_judged_by_its_own_clock_and_the_profile():
    story = next(one for one in stories.STORIES if one.name == "numpy-sync")
    assert story.functions == {"masked"}
    after = _side(50, 0.1, cause="", said={"lower": 0.0, "estimate": 0.12})
    right = stories.judged(story, _side(100, 0.6), after, ratio=0.52)
    assert set(right.values()) <= {True, None}, right
    # gains 500 of the 10 units; 400 does not cover it, 800 is more than half as much again
    for gain in (400, 800):
        assert stories.judged(story, _side(100, 0.6, max_gain_ns=gain), after, 0.52)["gain"] is False
    assert stories.judged(story, _side(100, 0.4), after, 0.52)["proved"] is False
    assert stories.judged(story, _side(100, 0.6), after, 1.4)["direction"] is False
    assert (
        stories.judged(story, _side(100, 0.6, lines=[["training.py", 1, "other"]]), after, 0.5)["line"]
        is False
    )


def test_where_the_fix_wins_little_on_this_machine_nothing_need_be_blamed():
    """By the programs' own clocks: what costs less than a tenth of a step is not the answer."""
    story = next(one for one in stories.STORIES if one.name == "allocator")
    quiet = {"class": "compute", "cause": "", "lines": [], "max_gain_ns": None}
    little = stories.judged(story, _side(100, 0.6, **quiet), _side(95, 0.6, **quiet), ratio=0.95)
    assert (little["class"], little["cause"], little["line"]) == (True, True, None)
    much = stories.judged(story, _side(100, 0.6, **quiet), _side(60, 0.6, **quiet), ratio=0.6)
    assert (much["class"], much["cause"], much["line"]) == (False, False, False)
    wrong = stories.judged(story, _side(100, 0.6, cause="C02"), _side(95, 0.6, **quiet), ratio=0.95)
    assert (wrong["cause"], wrong["line"]) == (False, False), "a wrong cause is wrong, however small"


def test_the_page_names_what_is_wrong_and_what_did_not_run():
    story = next(one for one in stories.STORIES if one.name == "numpy-sync")
    before = _side(100, 0.4)
    right = stories.judged(story, before, None, None)
    row = {"before": before, "after": None, "ratio": None, "right": right, "took_s": 1.0}
    results = {
        "machine": {"gpu": "H", "torch": "2", "cuda": "13"},
        "numpy-sync": row,
        "nvml": {"why": "no NVML"},
    }
    text = page(results)
    assert "- nvml did not run: no NVML" in text
    assert (
        "| numpy-sync | 0.00 | - | 40.0 | 50.0 | 62.0 | C02 proved | Sync-bound: x | proved, idle |" in text
    )
    assert ("proved", 0, 1) in summary(results)


def test_results_take_the_place_of_older_ones_in_the_page():
    results = {"machine": {"gpu": "H", "torch": "2", "cuda": "13"}}
    once = into("# Page\n", [results])
    assert once.startswith("# Page\n\n# Live, on machines with a real GPU\n")
    assert "## H, PyTorch 2, CUDA 13" in once
    assert into(once, [results]) == once


def test_every_story_marks_its_lines():
    for story in stories.STORIES:
        assert bool(story.lines) == (story.name not in ("compute", "memory", "shared")), story.name


def _check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.gpu_check", "-o", str(folder), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANGS_S)


def test_without_pytorch_it_says_so_and_ends(tmp_path: Path):
    done = _check(tmp_path, "--python", sys.executable)
    assert done.returncode == 1
    assert f"no Python with PyTorch and a GPU: {sys.executable}: " in done.stderr
    assert "why" in json.loads((tmp_path / "results.json").read_text())["machine"]


def test_what_is_done_is_not_done_again(tmp_path: Path):
    machine = {"gpu": "H", "torch": "2", "cuda": "13", "interpreter": sys.executable}
    names = (
        "check",
        "counts",
        "constants",
        "nvml",
        "costs",
        "slowdown",
        *(one.name for one in stories.STORIES),
    )
    results = {"machine": machine, **{name: {"why": "no time was left"} for name in names}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    done = _check(tmp_path, "--most", "0")
    assert done.returncode == 1
    assert "machine: " not in done.stdout
    assert done.stdout.count("no time was left after 0 s; start it again") >= len(names)
