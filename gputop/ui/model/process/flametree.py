"""The stacks of a process merged into a tree of exact nanoseconds: children sum up to their parent.

Outermost frames come first; the leaf is the called function or ``off-CPU``. Runs of native frames and of
frames of libraries are folded into one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Literal

from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.engine.frame import OFF_CPU, UNPLACED, ProcessRow, StackRow
from probes.code.source_files import is_library

Which = Literal["all", "calls", "waits"]
Kind = Literal["root", "own", "folded", "call", "wait", "other"]
Path = tuple[str, ...]  # names of nodes, without the root
OTHERS = "other stacks"


@dataclass(slots=True)
class Node:
    """A frame, or a run of folded ones, with everything below it."""

    name: str  # ``train.py:88 main()``
    kind: Kind  # its kind
    line: SourceLine | None = None  # its source line, if any
    ns: int = 0  # the time of the stacks through it
    count: int = 0  # their calls and waits
    children: dict[str, Node] = field(default_factory=dict)  # by name

    def ordered(self) -> list[Node]:
        """Return the children, own code first, then by name, so that nothing jumps."""
        return sorted(self.children.values(), key=lambda node: (node.kind != "own", node.name))

    def at(self, path: Path) -> tuple[Path, Node]:
        """Return the existing part of a path, and the node there."""
        node: Node = self
        for place, name in enumerate(path):
            if name not in node.children:
                return path[:place], node
            node = node.children[name]
        return path, node

    @property
    def depth(self) -> int:
        """The number of levels, with its own."""
        return 1 + max((child.depth for child in self.children.values()), default=0)


def tree_of(row: ProcessRow, which: Which = "all") -> Node:
    """Return the tree of a process: its calls, its waits between calls, or both."""
    root = Node(row.name, "root")
    for stack in row.stacks:
        waits = stack.api == OFF_CPU
        if which == "all" or waits == (which == "waits"):
            _add(root, stack, _steps(stack))
    return root


def _add(root: Node, stack: StackRow, steps: Sequence[tuple[str, Kind, SourceLine | None]]) -> None:
    node = root
    node.ns, node.count = node.ns + stack.sum_ns, node.count + stack.count
    for name, kind, line in steps:
        node = node.children.setdefault(name, Node(name, kind, line))
        node.ns, node.count = node.ns + stack.sum_ns, node.count + stack.count


def _steps(stack: StackRow) -> list[tuple[str, Kind, SourceLine | None]]:
    """Return the nodes of one stack, the outermost first."""
    leaf: Kind = "wait" if stack.api == OFF_CPU else "call"
    if not stack.frames or stack.frames == (UNPLACED,):
        name = UNPLACED.function if stack.frames else OTHERS
        return [(name, "other", None), (stack.api, leaf, None)]
    steps: list[tuple[str, Kind, SourceLine | None]] = []
    for own, run in groupby(reversed(stack.frames), key=_is_own):
        frames = list(run)
        steps += [(_name(line), "own", line) for line in frames] if own else [_folded(frames)]
    return [*steps, (stack.api, leaf, None)]


@lru_cache(maxsize=8_192)
def _is_own(line: SourceLine) -> bool:
    """True for the program's own Python code."""
    return bool(line.file) and not line.is_native and not is_library(line.file)


def _folded(frames: Sequence[SourceLine]) -> tuple[str, Kind, SourceLine | None]:
    """Return one node for a run of frames, named by the outermost one with a line."""
    python = [line for line in frames if line.file and not line.is_native]
    named = next(iter(python), next((line for line in frames if line.file), frames[0]))
    name = _name(named) if named.file else "native code"
    more = len(frames) - 1
    return (f"{name} +{more}" if more else name), "folded", named if named.file else None


@lru_cache(maxsize=8_192)
def _name(line: SourceLine) -> str:
    return line.function if line.is_native else f"{line.place} {line.function}()"


def start(tree: Node) -> Path:
    """Return where the graph branches: the last of the program's lines that all time passes."""
    path: list[str] = []
    found: Path = ()
    node = tree
    while len(node.children) == 1:
        node = next(iter(node.children.values()))
        path.append(node.name)
        found = tuple(path) if node.kind == "own" else found
    return found


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Yield every node with its path, parents first."""
    yield path, node
    for child in node.ordered():
        yield from walk(child, (*path, child.name))
