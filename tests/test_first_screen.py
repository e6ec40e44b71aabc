"""Whoever opens gputop for the first time names cause, line and fix from what is painted, without a key.

The recordings are of demos with one fault each; the truth is their source: the function that holds the fault,
and what its fixed form does instead.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gputop.demo import loaders, transfers
from gputop.ui.panes.pane import Pane
from tests import fake_frames as fake
from tests import told_recordings as recordings
from tests.first_screen import FirstScreen, read
from tests.screen_support import Shown, tokens_of

pytestmark = pytest.mark.slow
SIZES = ((80, 24), pytest.param((120, 40), marks=pytest.mark.long))
# the class, the fault in the words of its demo, the function that holds it, and what the fixed form does
PLANTED: dict[str, tuple[str, str, tuple[ModuleType, str], str]] = {
    "numpy-sync": ("sync", "device-to-host read", (transfers, "numpy_sync"), "do it in a kernel"),
    "redundant-to-device": (
        "copy", "many small host-to-device copies", (transfers, "redundant_to_device"),
        "create the data there",
    ),
    "dataloader": ("input", "on the main thread", (loaders, "_Dataset.__getitem__"), "fetch whole batches"),
    "dataloader-workers": (
        "input", "DataLoader is CPU-bound", (loaders, "_one_by_one"), "fetch whole batches",
    ),
    "dataloader-direct": (
        "input", "on the main thread", (loaders, "_Dataset.__getitems__"), "another process",
    ),
}  # fmt: skip
HEALTHY = ("healthy", "numpy-sync-fixed", "redundant-to-device-fixed", "dataloader-fixed")


def source_of(module: ModuleType, name: str) -> tuple[Path, range]:
    """The file of a function, and its lines."""
    path = Path(str(module.__file__))
    node: Any = ast.parse(path.read_text())
    for part in name.split("."):
        (node,) = [one for one in node.body if getattr(one, "name", "") == part]
    return path, range(node.lineno, node.end_lineno + 1)


@cache
def painted(name: str, size: tuple[int, int]) -> FirstScreen:
    """Near the end of a recording of the repository, painted without a key."""
    with Shown(recordings.frame(name), size=size, replay=True) as screen:
        screen.explain(recordings.explained(name))
        return read(screen.text())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PLANTED)
def test_a_stranger_names_cause_line_and_fix(name: str, size: tuple[int, int]) -> None:
    kind, what, holder, fix = PLANTED[name]
    screen = painted(name, size)
    path, held = source_of(*holder)
    file, _, line = screen.place.partition(":")
    assert screen.kind == f"{kind}-bound", screen.text
    assert what in screen.what
    # the recordings were made when the file of the loaders had a shorter name
    assert file == path.name
    assert int(line) in held
    assert re.search(fix, screen.fix), screen.fix
    assert screen.saves_ns > 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PLANTED)
def test_neither_cause_nor_fix_is_cut_within_a_word(name: str, size: tuple[int, int]) -> None:
    screen = painted(name, size)
    assert "…" not in screen.what + screen.place
    assert "…" not in screen.fix.removesuffix(" …"), "a whole clause may be left out, and is said to be"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", HEALTHY)
def test_where_nothing_is_wrong_a_stranger_reads_no_cause_and_no_fix(
    name: str, size: tuple[int, int]
) -> None:
    screen = painted(name, size)
    assert (screen.what, screen.place, screen.fix) == ("", "", "")
    assert screen.kind == "compute-bound"


@pytest.mark.parametrize("size", SIZES)
def test_without_a_driver_and_without_cuda_one_calm_sentence_says_so(size: tuple[int, int]) -> None:
    reason = "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)"
    nothing = fake.frame(gpus=0, processes=0, storm=False, driver="", problems=(f"no GPU figures: {reason}",))
    with Shown(nothing, size=size) as screen:
        text = screen.text()
        spans = [span for pane in screen.app.screen.query(Pane) for span in tokens_of(pane)]
    assert text.count("no NVIDIA driver") == 1
    assert "Try: gputop demo storm" in text
    assert "no process has made a CUDA call yet" in text
    assert "[w] all findings" not in text, "there is none"
    assert [told for told, token in spans if token == "alert"] == []


@pytest.mark.parametrize("size", SIZES)
def test_without_root_it_is_reported_what_is_not_seen_and_what_to_type(size: tuple[int, int]) -> None:
    unseen = "CUDA calls and preempting threads are not shown"
    problem = f"no eBPF without root: {unseen}; to see them: sudo gputop"
    with Shown(fake.frame(storm=False, calls_observed=False, problems=(problem,)), size=size) as screen:
        text = " ".join(screen.text().split())
    assert "unknown without eBPF, which traces CUDA calls: gputop check" in text
    assert "to see them: sudo gputop" in text
    assert "FIX 1" not in text


def test_at_80x24_the_answer_takes_three_lines() -> None:
    lines = painted("numpy-sync", (80, 24)).text.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["›WHY", "1", "FIX"]
