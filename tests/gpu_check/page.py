"""The results as a page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gputop.analysis.proofs.proofs import END_NS, SLOW_COPY, START_NS, WAIT_NS
from tests.gpu_check.stories import STORIES, short_verdict

MARK = "\n# Live, on machines with a real GPU\n"
TEXT = """
Written by `make gpu-check ARGS="--page docs/real-gpus.md FOLDER…"` from what the check left in each folder.
"""
COLUMNS = (
    "proved",
    "idle",
    "class",
    "cause",
    "line",
    "live",
    "gain",
    "fixed",
    "direction",
    "diff",
    "proved after",
    "idle after",
)
MARKS = {True: "right", False: "**wrong**", None: "-"}


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f}"


def summary(results: dict[str, Any]) -> list[tuple[str, int, int]]:
    """How many of those that can be judged are right, by column."""
    rows = [results[story.name]["right"] for story in STORIES if "right" in results.get(story.name, {})]
    told = [(column, [row[column] for row in rows if row.get(column) is not None]) for column in COLUMNS]
    return [(column, sum(values), len(values)) for column, values in told]


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    return "".join(f"{line}\n" for line in _lines(results))


def _lines(results: dict[str, Any]) -> Iterator[str]:
    facts = results.get("machine", {})
    yield f"## {facts.get('gpu', 'a GPU')}, PyTorch {facts.get('torch')}, CUDA {facts.get('cuda')}\n"
    failed = {name: part["why"] for name, part in results.items() if "why" in part}
    for name, why in failed.items():
        yield f"- {name} did not run: {why}"
    if "check" in results and "why" not in results["check"]:
        check = results["check"]
        yield f"- Linux {check['kernel']}, driver {check['driver']}"
        yield f"- libraries: {', '.join(check['libraries'])}"
        yield f"- functions that PyTorch imports: {check['torch uses']}, {check['of them traced']} are traced"
        for text in check["missing"]:
            yield f"- missing: {text}"
    if "counts" in results and "why" not in results["counts"]:
        counts = results["counts"]
        yield (
            f"- calls: {MARKS[counts['right']]}; {sum(counts['made'].values())} made, "
            f"{sum(counts['counted'].values())} counted, {counts['lost']} events lost"
        )
    yield "\n| requirement | holds in |\n|---|---|"
    for column, good, whole in summary(results):
        yield f"| {column} | {good} of {whole} |"
    yield "\n| story | ms a step | after | idle % | proved % | estimate % | first cause | verdict | wrong |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for story in STORIES:
        row = results.get(story.name)
        if row and "right" in row:
            yield _story(story.name, row)
    if "costs" in results and "why" not in results["costs"]:
        yield "\n| call | ns | added by gputop |\n|---|---|---|"
        for name, one in results["costs"].items():
            yield f"| {name} | {one['quiet_ns']} | {one['added_ns']} |"
    for name in ("slowdown", "constants", "nvml"):
        if name in results and "why" not in results[name]:
            yield f"\n{name}: `{json.dumps(results[name])}`"
    yield (
        f"\nThe proofs take: a kernel begins within {START_NS} ns of its launch, a wait returns within"
        f" {END_NS} ns of its end, a wait above {WAIT_NS} ns found work, a pageable copy has at least"
        f" {SLOW_COPY} bytes a ns."
    )


def _story(name: str, row: dict[str, Any]) -> str:
    before, after, said = row["before"], row["after"], row["before"]["said"]
    wrong = ", ".join(column for column in COLUMNS if row["right"].get(column) is False)
    cells = (
        name,
        f"{before['unit_ns'] / 1e6:.2f}",
        f"{after['unit_ns'] / 1e6:.2f}" if after else "-",
        _percent(before["idle"]),
        _percent(said["idle"].get("lower")),
        _percent(said["idle"].get("estimate")),
        f"{said['cause']} {said['level']}".strip() or "nothing",
        short_verdict(said).replace("|", "/"),
        wrong or "-",
    )
    return f"| {' | '.join(cells)} |"


def into(text: str, results: Iterable[dict[str, Any]]) -> str:
    """A page with these results in place of those that it had."""
    parts = [page(one) for one in results]
    return "".join([text.partition(MARK)[0], MARK, TEXT, *(f"\n{part}" for part in parts)])


def write(folder: Path, results: dict[str, Any]) -> None:
    """Writes ``results.json`` and ``results.md``."""
    (folder / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (folder / "results.md").write_text(page(results), encoding="utf-8")
