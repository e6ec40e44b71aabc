"""The bench of stories: its catalogue, its judgement, and the device that the shim gives a CPU build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.analysis.ledger import LEFT
from gputop.simgpu import environment, read_trace
from tests.first_screen import read
from tests.stories import chains, ends, installed, live
from tests.stories.answer import Answer, Difference
from tests.stories.catalogue import PAIRS, PROGRAMS, STORIES, Pair
from tests.stories.cells import put
from tests.stories.delays import Delays
from tests.stories.foreign import foreign
from tests.stories.judge import Change, Truth, Verdict
from tests.stories.recording import Run
from tests.stories.screen_line import ScreenLine
from tests.stories.shim import build
from tests.stories.table import Outcome, page, summary

SPAN = 1_000_000_000


def report(**keys: Any) -> dict[str, Any]:
    """What ``gputop explain`` would say: half of the span is proved idle, nothing is blamed."""
    idle = {"lower": SPAN // 2, "upper": SPAN * 9 // 10}
    return {"span_ns": SPAN, "gpu_idle_ns": idle, "findings": []} | keys


def finding(cause: str, file: Path, line: int, gain: int = 0) -> dict[str, Any]:
    """One thing that is blamed."""
    place = {"file": str(file), "line": line, "function": "f"}
    return {"cause": cause, "line": place, "chain": [], "max_gain_ns": gain}


def run_of(name: str, unit_ns: int = 1000, delayed: int = 0) -> Run:
    """A run of a hundred units."""
    clock = {"units": 100, "ns": 100 * unit_ns, "delayed": delayed, "warm_up": 0}
    return Run(STORIES[name], 1, Path("."), (clock,))


def verdict(name: str, idle: float = 0.6, unit_ns: int = 1000, screen: str = "", **keys: Any) -> Verdict:
    """A run judged; ``screen`` is the WHY line."""
    truth, delayed = Truth(idle, idle - 0.02), keys.pop("delayed", 0)
    return Verdict(run_of(name, unit_ns, delayed), Answer(report(**keys)), truth, ScreenLine(screen))


def change(before_ns: int, after_ns: int, said: float | None, gain: int = 0, above: int = 0) -> Change:
    """Two runs compared; ``said`` is diff's ratio, ``gain`` what was promised before, ``above`` by C13."""
    blamed = [finding("C13", PROGRAMS / "sync_bound.py", 1, above)] if above else []
    blamed.append(finding("C01", PROGRAMS / "sync_bound.py", 1, gain))
    step = {"name": "duration_ns", "before": {"usual": 1}, "after": {"usual": said}}
    measures = [] if said is None else [step]
    return Change(
        Pair("sync-item", "sync-rarely", removes_cause=True),
        verdict("sync-item", unit_ns=before_ns, findings=blamed),
        verdict("sync-rarely", unit_ns=after_ns),
        Difference({"unit": "step", "measures": measures}),
    )


@pytest.mark.parametrize("name", STORIES)
def test_a_story_has_its_program_and_the_lines_that_it_blames(name: str) -> None:
    story = STORIES[name]
    assert story.program.exists()
    assert bool(story.lines) == bool(story.mark)
    assert story.mark == "" or story.causes


def test_pairs_compare_stories() -> None:
    assert {name for pair in PAIRS for name in (pair.before, pair.after)} <= set(STORIES)


@pytest.mark.parametrize(("idle", "holds"), [(0.45, False), (0.5, True), (0.91, True), (0.95, False)])
def test_bounds_hold_around_the_truth(idle: float, holds: bool) -> None:
    assert verdict("sync-item", idle).bounds_hold == holds


@pytest.mark.parametrize(("estimate", "near"), [(0.52, False), (0.54, True), (0.64, True), (0.66, False)])
def test_an_estimate_is_held_to_five_points(estimate: float, near: bool) -> None:
    idle = {"lower": 0, "upper": SPAN, "estimate": int(estimate * SPAN)}
    assert verdict("sync-item", gpu_idle_ns=idle).near == near


def test_without_an_estimate_it_is_not_near() -> None:
    assert not verdict("sync-item").near


def test_a_proof_above_the_truth_breaks_the_bounds() -> None:
    idle = {"lower": 0, "upper": SPAN, "proved": int(0.7 * SPAN)}
    assert not verdict("sync-item", 0.6, gpu_idle_ns=idle).bounds_hold


def test_class_cause_and_line_are_those_of_the_story() -> None:
    story = STORIES["sync-item"]
    right = verdict(story.name, **{"class": "sync"}, findings=[finding("C01", story.program, story.lines[0])])
    assert (right.class_right, right.cause_right, right.line_right) == (True, True, True)
    wrong = verdict(story.name, **{"class": "input"}, findings=[finding("C12", story.program, 1)])
    assert (wrong.class_right, wrong.cause_right, wrong.line_right) == (False, False, False)


@pytest.mark.parametrize(
    ("name", "screen", "right"),
    [
        ("sync-item", "WHY ▲ sync-bound, idle ~34%: `.item()` … (C01 proved) at sync_bound.py:22", True),
        ("sync-item", "WHY ▲ sync-bound, idle ~34%: `.item()` … (C01 proved) at sync_bound.py:99", False),
        ("sync-item", "WHY ▲ sync-bound, idle ~34%: `.item()` … (C07 proved) at sync_bound.py:22", False),
        ("sync-item", "WHY ▲ copy-bound, idle ~34%: `.item()` … (C01 proved) at sync_bound.py:22", False),
        (
            "train-plain",
            "WHY · compute-bound, idle 3–22 %: a kernel ran for about 78 % of the time (strong)",
            True,
        ),
        ("train-plain", "WHY · compute-bound, idle 3–22 %: a thread … (C07 hint) at trainer.py:9", False),
    ],
)
def test_the_screen_names_class_cause_and_line(name: str, screen: str, *, right: bool) -> None:
    assert verdict(name, screen=screen).screen_right == right


def test_whoever_takes_the_cpu_is_no_line() -> None:
    starved = finding("C13", PROGRAMS / "input_bound.py", 1)
    assert verdict("data-8-pinned", findings=[starved]).line_right is None
    assert verdict("data-8-pinned", findings=[starved | {"cause": "C08"}]).line_right is False


def test_starved_of_cpu_is_right_where_the_kernel_counted_a_delay() -> None:
    """Of the hundred thousand nanoseconds that the loop took."""
    starved: dict[str, Any] = {"class": "cpu", "findings": [finding("C13", PROGRAMS / "trainer.py", 1)]}
    for delayed, right in ((4_000, False), (6_000, True)):
        one = verdict("train-plain", delayed=delayed, **starved)
        assert (one.class_right, one.cause_right) == (right, right)
    assert verdict("train-plain", delayed=6_000).cause_right


def test_nothing_may_be_blamed_in_a_healthy_program() -> None:
    assert verdict("train-plain").cause_right
    assert not verdict("train-plain", findings=[finding("C06", PROGRAMS / "trainer.py", 1)]).cause_right
    assert verdict("train-plain").line_right is None


@pytest.mark.parametrize(
    ("before", "after", "said", "direction", "ratio"),
    [
        (1000, 500, 0.52, True, True),
        (1000, 500, 0.70, True, False),
        (1000, 500, 1.30, False, False),
        (1000, 500, None, False, False),
        (1000, 1010, 0.97, True, True),
        (1000, 1010, 0.60, False, False),
    ],
)
def test_a_difference_is_held_against_the_clocks(
    before: int, after: int, said: float | None, direction: bool, ratio: bool
) -> None:
    told = change(before, after, said)
    assert (told.direction_right, told.ratio_right) == (direction, ratio)


@pytest.mark.parametrize(
    ("promised", "holds"), [(49_000, False), (51_000, True), (99_000, True), (101_000, False)]
)
def test_what_a_change_can_win_is_a_bound_and_no_more_than_twice_the_gain(promised: int, holds: bool) -> None:
    assert change(1000, 500, 0.5, promised).gain_holds == holds


@pytest.mark.parametrize(("promised", "holds"), [(49_000, False), (51_000, True), (101_000, True)])
def test_in_a_starved_program_the_bound_of_its_own_cause_counts(promised: int, holds: bool) -> None:
    """What is advised first, to stop what takes the CPU, is not the change that was made."""
    assert change(1000, 500, 0.5, promised, above=1).gain_holds == holds


def test_the_page_counts_what_holds() -> None:
    healthy = verdict("train-plain", screen="compute-bound: busy")
    outcome = Outcome("Quiet", [verdict("sync-item"), healthy], [change(1000, 500, 0.5)])
    held = dict(summary(outcome))
    assert held["1. proved and bounds hold"] == "2 of 2"
    assert held["1. estimate within 5 points"] == "0 of 2"
    assert held["3. ratio within 10 %"] == "1 of 1"
    assert held["5. class, cause and line on the screen"] == "1 of 2"
    text = page([outcome])
    assert "| sync-item | 1 |" in text
    assert "sync-item → sync-rarely" in text


# -- programs whose chain leads elsewhere ------------------------------------------------------


def at_end(line: int, title: str = "waits for process front (7), which computes", **keys: Any) -> ends.Told:
    """A server whose front computes at ``compute_peer()``, and what is reported of it."""
    story = replace(chains.STORIES["pipe-computes-before"], hint=bool(keys.pop("hint", False)))
    delayed, panel = keys.pop("delayed", 0.0), keys.pop("panel", "")
    first = finding(keys.pop("cause", "C19"), story.program, line) | {
        "title": title,
        "level": "proved",
        "advice": [],
    }
    told = Answer(report(findings=[first | keys], verdict=title, **{"class": "host"}))
    text = str(keys.get("text", "the GPU waits"))
    return ends.Told(Run(story, 1, Path("."), (), delayed), told, Truth(0.6, 0.6), read(panel), text)


def test_only_the_line_of_the_chain_s_end_is_right() -> None:
    story = chains.STORIES["pipe-computes-before"]
    assert at_end(min(story.ends)).end_right
    assert not at_end(1).end_right


def test_a_name_that_can_only_be_guessed_is_not_proved() -> None:
    line = min(chains.STORIES["pipe-computes-before"].ends)
    assert not at_end(line, hint=True).level_right
    assert at_end(line, hint=True, name_level="hint").level_right


@pytest.mark.parametrize(
    ("because", "promised", "above", "holds"),
    [
        (LEFT, 100, 400, True),
        (LEFT, 100, 390, False),  # together less than the truth
        (LEFT, 760, 0, False),
        ("", 100, 400, False),  # stands for itself
        ("", 500, 0, True),
        ("", 750, 0, True),
        ("", 751, 0, False),
    ],
)
def test_a_saving_that_is_left_by_those_above_it_covers_the_gain_with_them(
    because: str, promised: int, above: int, *, holds: bool
) -> None:
    """A starved program: in truth a step wins 500 of 1000 ns, ten steps 5000."""
    story = chains.STORIES["pipe-computes-before"]
    own = at_end(min(story.ends), max_gain_ns=10 * promised, gain_because=because)
    starved = finding("C13", story.program, 1, 10 * above)
    own.answer.report["findings"].insert(0, starved)
    clocks = [{"units": 10, "ns": 10 * ns, "delayed": 2 * ns, "warm_up": 0} for ns in (1000, 500)]
    before, after = (replace(own, run=Run(story, 1, Path("."), (clock,))) for clock in clocks)
    pair = Pair("pipe-computes-before", "pipe-computes-after", removes_cause=True)
    assert ends.Changed(pair, before, after, Difference({})).gain_right == holds


def panel_of(what: str, place: str, number: str = "C29", kind: str = "host-bound") -> str:
    """The WHY panel at 80 columns."""
    return (
        f" WHY last 10 s, 0.2 s old  {kind}   GPU 0 idle 36–37 % ▐███████  ▌\n"
        f" 1 36 % ██▉       {what} {number} proved  {place}   \n"
        " FIX 1 let it prepare the next answer                   saves up to 3.6 s "
    )


@pytest.mark.parametrize(
    ("panel", "delayed", "right"),
    [
        (panel_of("waits for process front", "peers.py:{end}"), 0.0, True),
        (panel_of("waits for process front", "pee…:{end}"), 0.0, True),
        (panel_of("waits for process front", "peers.py:1"), 0.0, False),
        (panel_of("waits for process front", ""), 0.0, False),
        (panel_of("waits for a thread", "peers.py:{end}"), 0.0, False),
        (panel_of("waits for process front", "peers.py:{end}", kind="input-bound"), 0.0, False),
        (panel_of("is starved of CPU", "peers.py:1", "C13", "starved of CPU"), 0.2, True),
        (panel_of("is starved of CPU", "peers.py:1", "C13", "starved of CPU"), 0.01, False),
    ],
)
def test_the_panel_names_class_cause_and_the_line_of_the_chain_s_end(
    panel: str, delayed: float, *, right: bool
) -> None:
    end = min(chains.STORIES["pipe-computes-before"].ends)
    assert at_end(end, panel=panel.replace("{end}", str(end)), delayed=delayed).screen_right == right


def test_a_live_screen_has_to_be_right_and_to_stay_so() -> None:
    story = chains.STORIES["pipe-computes-before"]
    shown = read(panel_of("waits for a thread", "peers.py:1"))
    right = live.Live(story, 4.0, 0.9, read(""), 0.25, 0.01)
    lives = [right, replace(right, held=0.2, screen=shown), live.Live(story, None, 0.0, shown)]
    assert [one.right for one in lives] == [True, False, False]
    text = live.section("Chains: live", lives, ["nap-step-before: no PyTorch"])
    assert text.startswith("# Chains: live\n")
    assert "Right within 30 s: 1 of 3." in text
    assert "| pipe-computes-before | 4.0 | 90.0 | 1.0 | 25.0 |" in text
    assert "waits for a thread C29 proved peers.py:1" in text
    assert "Failed: nap-step-before" in text


def test_starved_of_cpu_is_right_alone_where_the_kernel_counted_a_delay() -> None:
    for delayed, right in ((0.01, False), (0.2, True)):
        one = at_end(1, "the submitting thread is starved of CPU", cause="C13", delayed=delayed)
        assert (one.named, one.end_right) == (right, right)


def test_each_kind_of_story_has_a_part_of_the_page_of_its_own(tmp_path: Path) -> None:
    page_file = tmp_path / "stories.md"
    for part in ("# One\n\nfirst\n", "# Two\n\n## Quiet\n\nolder\n", "# Three\n", "# Two\n\nnewer\n"):
        put(page_file, part)
    assert page_file.read_text() == "# One\n\nfirst\n\n# Two\n\nnewer\n\n# Three\n"


def test_a_delay_is_read_from_outside() -> None:
    """Two processes on one CPU: each waits for about half of the time."""
    code = "import os, time; os.sched_setaffinity(0, {0}); t = time.time() + 3\nwhile time.time() < t: pass"
    starts = "import subprocess, sys, time\n"
    starts += f"both = [subprocess.Popen([sys.executable, '-c', {code!r}]) for _ in 'ab']"
    parent = subprocess.Popen([sys.executable, "-c", f"{starts}; time.sleep(4)"])
    with Delays(parent.pid) as delays:
        parent.wait()
    assert 0.2 < delays.share < 1.1


@pytest.mark.parametrize(
    ("text", "loads", "words"),
    [
        (
            "index the tensor instead of DataLoader, or num_workers=8",
            ("python",),
            ["tensor", "DataLoader", "num_workers"],
        ),
        ("index the tensor instead of DataLoader, or num_workers=8", ("torch", "python"), []),
        ("the Triton kernel; hold the GIL less", ("torch",), ["Triton", "GIL"]),
        ("tensor cores idle", (), []),
    ],
)
def test_words_of_a_framework_that_is_not_loaded(text: str, loads: tuple[str, ...], words: list[str]) -> None:
    assert foreign(text, loads) == words


@pytest.mark.parametrize("name", chains.STORIES)
def test_a_program_has_the_lines_at_which_its_chain_ends(name: str) -> None:
    story = chains.STORIES[name]
    assert story.program.exists()
    assert bool(story.ends) == bool(story.end)
    assert bool(story.classes) == bool(story.end)


# -- the shim ---------------------------------------------------------------------------------

_PROGRAM = """
import json, os, sys, torch

def counted():
    with open(os.environ["SIMGPU_LOG"], errors="replace") as log:
        lines = [json.loads(line) for line in log if line.strip()]
    return next(line["calls"] for line in lines if line["pid"] == os.getpid() and line["lib"] == "cuda")

torch.ones(4, device="cuda")
for code in json.loads(sys.argv[1]):
    before = counted()
    exec(code)
    after = counted()
    print(json.dumps({name: after[name] - before.get(name, 0) for name in after}))
model = torch.nn.Linear(512, 512).cuda()
for _ in range(3):
    model(torch.ones(64, 512, device="cuda")).sum().backward()
torch.cuda.synchronize()
tasks = "/proc/self/task"
print(json.dumps([open(f"{tasks}/{tid}/comm").read().strip() for tid in os.listdir(tasks)]))
"""
_SYNC, _COPY = "cudaStreamSynchronize", "cudaMemcpyAsync"
_MADE = {  # by a line of a program: PyTorch's calls that copy, wait, page-lock and mark
    "torch.ones(4).cuda()": {_COPY: 1, _SYNC: 1},
    "torch.ones(4, device='cuda').cpu()": {_COPY: 1, _SYNC: 1},
    "torch.ones((), device='cuda').item()": {_COPY: 1, _SYNC: 1, "cudaHostAlloc": 1},
    "torch.ones((), device='cuda').item() # again": {_COPY: 1, _SYNC: 1},
    "torch.ones(40).pin_memory().to('cuda', non_blocking=True)": {
        _COPY: 1,
        "cudaHostAlloc": 1,
        "cudaEventRecordWithFlags": 1,  # behind the copy, when the pinned block is free
    },
    "torch.cuda.synchronize()": {"cudaDeviceSynchronize": 1},
    "torch.ones(4, device='cuda').nonzero()": {_COPY: 1, _SYNC: 1},
    "torch.arange(4.0, device='cuda')[torch.tensor([1, 2])]": {_COPY: 1, _SYNC: 1},
    "torch.ones(4, device='cuda') + 1": {},
}
_OF_INTEREST = {name for made in _MADE.values() for name in made}


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, dict[str, int]], list[str], Path]:
    """(line of a program to the calls that it makes, the names of the threads, the trace)."""
    torch = installed.cpu_build()
    if torch is None:
        pytest.skip(f"no CPU build of torch in {installed.cache()}: make torch")
    folder = tmp_path_factory.mktemp("shim")
    env = environment(os.environ) | build.settings(torch)
    env |= {name: str(folder / name) for name in ("SIMGPU_STATE", "SIMGPU_LOG", "SIMGPU_TRACE")}
    done = subprocess.run(
        [torch / "bin" / "python", "-c", _PROGRAM, json.dumps(list(_MADE))],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *made, threads = map(json.loads, done.stdout.splitlines())
    return dict(zip(_MADE, made, strict=True)), threads, folder / "SIMGPU_TRACE"


@pytest.mark.parametrize("code", _MADE)
@pytest.mark.long
def test_a_line_makes_the_calls_of_pytorch(shim: Any, code: str) -> None:
    made = {name: count for name, count in shim[0][code].items() if name in _OF_INTEREST and count}
    assert made == _MADE[code]


@pytest.mark.long
def test_backward_runs_in_the_thread_of_the_device(shim: Any) -> None:
    _, threads, trace = shim
    assert "pt_autograd_0" in threads
    assert len(read_trace(trace).of(kinds={"kernel"})) >= 3 * 4
