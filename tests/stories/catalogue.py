"""The stories: a program, what is true of it, and which changes are to be compared."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"


@dataclass(frozen=True, slots=True)
class Story:
    """One program and the right answer.

    Attributes:
        classes: Any of them is right, "" for none that is known.
        causes: Any of them may come first; without one nothing may be blamed.
        mark: The comment in the program at the line that is to blame; "" where no line is.
        beside: A second program that runs on the same GPU at the same time, unwatched by the story.
        ranks: So many processes of the program, each with a GPU of its own.
        needs_wheel: It does not run on the shim.
        what, fix: What is wrong and what its author did about it, as patterns of a person's words.
        folder: Where the program lies.
        python: Who runs it: ``torch``, ``plain`` (this Python: ctypes on libcudart), ``numba``, or
            ``native``: g++ or nvcc compiles it.
        end: Where the chain ends: ``tokenize()`` for any line of that function, else a pattern of the line's
            text; alternatives apart by `` | ``.
        loads: Frameworks that its processes load, of those in foreign.py; their words may be used.
        clocked: It prints its own clock.
        hint: The name of its cause can only be guessed: "proved" would be wrong.
    """

    name: str
    command: str
    classes: tuple[str, ...]
    causes: tuple[str, ...] = ()
    mark: str = ""
    beside: str = ""
    ranks: int = 1
    needs_wheel: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    what: str = ""
    fix: str = ""
    folder: Path = PROGRAMS
    python: str = "torch"
    end: str = ""
    loads: tuple[str, ...] = ("torch",)
    clocked: bool = True
    hint: bool = False

    @property
    def program(self) -> Path:
        """The file that is run."""
        return self.folder / self.command.split()[0]

    @property
    def ends(self) -> frozenset[int]:
        """The lines at which the chain may end."""
        text = self.program.read_text()
        found: set[int] = set()
        for one in filter(None, self.end.split(" | ")):
            if self.program.suffix in (".cpp", ".cu"):
                found |= {0}  # of native code no line is known, only the function
            elif one.endswith("()"):
                found |= _lines_of(text, one.removesuffix("()"))
            else:
                found |= {row for row, line in enumerate(text.splitlines(), 1) if re.search(one, line)}
        return frozenset(found)

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines that are to blame."""
        if not self.mark:
            return ()
        rows = self.program.read_text().splitlines()
        return tuple(
            row
            for row, text in enumerate(rows, 1)
            if text.partition("# <- ")[2] in (self.mark, f"{self.mark} too")
        )


def _lines_of(text: str, name: str) -> set[int]:
    """The lines of the body of the functions of that name."""
    return {
        row
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        for row in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


@dataclass(frozen=True, slots=True)
class Pair:
    """A change whose effect ``gputop diff`` is asked for. The programs' own clocks tell the truth.

    Attributes:
        removes_cause: It removes the story's cause, so that its gain is held against what was promised.
    """

    before: str
    after: str
    removes_cause: bool = False


def _story(name: str, command: str, classes: str, causes: str = "", mark: str = "", **more: object) -> Story:
    return Story(name, command, tuple(classes.split()), tuple(causes.split()), mark, **more)  # type: ignore[arg-type]


_INPUT = "C08 C09 C10 C12 C13"
_HOST = "C06 C12"
_SLOW_MEMORY = {"SIMGPU_MALLOC_NS": "400000", "SIMGPU_FREE_NS": "300000"}

# what whoever wrote of it found, and did about it
_READS_BACK = {"what": "device-to-host read", "fix": r"on the GPU.*\.cpu\(\)"}
_GATHERS = {
    "what": "input prepared on the main thread|DataLoader is (?:CPU-bound|starved of CPU)",
    "fix": "whole batches|index the tensor|num_workers=",
}
_PAGEABLE = {"what": "pageable host-to-device copies", "fix": "pinned memory"}
_MOVES = {"what": "tensors made on the CPU", "fix": "create .* on the GPU"}
_READS_LOSS = {"what": r"\.item\(\)", "fix": "keep it on the device.*every n steps"}

STORIES: dict[str, Story] = {
    story.name: story
    for story in (
        _story("S0-before", "s0_masking.py before", "sync", "C02 C07", "cause", **_READS_BACK),
        _story("S0-after", "s0_masking.py after", "compute"),
        _story("S1-loader", "s1_inference.py loader", "input", _INPUT, "cause", **_GATHERS),
        _story("S1-workers", "s1_inference.py workers", "input", _INPUT, "cause", **_GATHERS),
        _story("S1-direct", "s1_inference.py direct", "copy", "C04", "cause direct", **_PAGEABLE),
        _story("S1-randperm", "s1_inference.py randperm", "input copy", "C12 C04", "cause randperm"),
        _story("S3-v0", "s3_pooling.py v0", "copy", "C05", "cause", **_MOVES),
        _story("S3-v1", "s3_pooling.py v1", "copy", "C05", "cause"),
        _story("S3-v2", "s3_pooling.py v2", "copy", "C05", "cause"),
        _story("S3-v3", "s3_pooling.py v3", "launch", _HOST),
        _story("data-0", "input_bound.py 0 pageable", "input", _INPUT, "cause"),
        _story("data-2", "input_bound.py 2 pageable", "input", _INPUT, "cause"),
        _story("data-2-pinned", "input_bound.py 2 pinned", "input", _INPUT, "cause"),
        _story("data-8-pinned", "input_bound.py 8 pinned", "input cpu", _INPUT, "cause"),
        _story("sync-item", "sync_bound.py item", "sync", "C01", "cause item", **_READS_LOSS),
        # it costs 8 % of a step: less than the tenth from which on a class of causes is the answer
        _story("sync-print", "sync_bound.py print", "sync compute", "C01 C02 C07", "cause print"),
        _story("sync-metrics", "sync_bound.py metrics", "sync", "C02", "cause metrics"),
        _story("sync-synchronize", "sync_bound.py synchronize", "sync", "C03", "cause synchronize"),
        _story("sync-rarely", "sync_bound.py rarely", "compute"),
        _story("launch-tiny", "busy.py tiny", "launch", _HOST),
        _story("compute-fp32", "busy.py fp32", "compute"),
        _story("compute-bf16", "busy.py bf16", "compute"),
        _story("memory-elementwise", "busy.py elementwise", "memory"),
        _story("disk-0", "from_disk.py 0", "input", f"{_INPUT} C18", "cause"),
        _story("disk-2", "from_disk.py 2", "input", _INPUT, "cause"),
        _story("graphs-eager", "graphs.py eager", "launch", _HOST, "cause"),
        _story("graphs-graph", "graphs.py graph", "compute memory"),
        _story("train-plain", "trainer.py plain", "compute"),
        _story("train-loader", "trainer.py loader", "compute"),
        _story("train-accumulate", "trainer.py accumulate", "compute"),
        _story("train-evaluate", "trainer.py evaluate", "compute"),
        _story("train-checkpoint", "trainer.py checkpoint", "compute"),
        # what a large segment costs on a real GPU: its pages are mapped
        _story("train-churn", "trainer.py churn", "sync launch", "C20", "cause churn", settings=_SLOW_MEMORY),
        _story("server", "server.py", "no-requests", beside="client.py 10"),
        _story("shared", "trainer.py plain", "shared", "C25", beside="busy.py fp32"),
        _story("ranks-straggler", "ranks.py straggler", "communication", "C23", ranks=2, needs_wheel=True),
        _story("ranks-even", "ranks.py even", "compute", ranks=2, needs_wheel=True),
    )
}

PAIRS = (
    Pair("S0-before", "S0-after", removes_cause=True),
    Pair("S1-loader", "S1-direct", removes_cause=True),
    Pair("S1-loader", "S1-workers"),
    Pair("S1-workers", "S1-randperm"),
    Pair("S1-randperm", "S1-direct"),
    Pair("S3-v0", "S3-v1"),
    Pair("S3-v0", "S3-v2"),
    Pair("S3-v0", "S3-v3", removes_cause=True),
    Pair("data-0", "data-2"),
    Pair("disk-0", "disk-2"),
    Pair("graphs-eager", "graphs-graph", removes_cause=True),
    Pair("train-churn", "train-plain", removes_cause=True),
    Pair("train-plain", "train-accumulate"),
    Pair("ranks-straggler", "ranks-even", removes_cause=True),
    Pair("data-2", "data-2-pinned"),
    Pair("sync-item", "sync-rarely", removes_cause=True),
    Pair("sync-print", "sync-rarely", removes_cause=True),
    Pair("sync-metrics", "sync-rarely", removes_cause=True),
    Pair("sync-synchronize", "sync-rarely", removes_cause=True),
)
