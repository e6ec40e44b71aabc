"""Checks the layout of the code: ``python -m scripts.layout`` lists offences; exit status 1 if there is any.

Imports have no circles, also within a package and for types alone; a file has at most 600 lines and a folder
at most 15 modules; a basename and a public class's name stand for one thing; tests use public names; names of
the packages are nouns of the field: none holds "told", "asked", "given" or "taken".
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gputop", "replay", "probes")
MOST_LINES = 600
MOST_MODULES = 15
VAGUE = re.compile(
    r"(?:^|_)(?:un)?(?:told|tells?|telling|said|says?|asked|asks?|asking|given|gives?|taken|takes?|took)(?:_|$)",
    re.I,
)
KEPT_NAMES = frozenset({"take", "takes"})  # numpy's own method of arrays, here of tables; a key of a document
# private names of others' libraries, for which these have no public one
FOREIGN = frozenset(
    {
        "Handle._run", "app._animator", "app._background_screens", "app._exit", "app._notifications",
        "app._resize_timer", "argparse._SubParsersAction", "client._read_payload",
        "http._extract_retry_after", "item._fixtureinfo", "node._bindings", "os._exit", "parser._actions",
        "pilot._post_mouse_events",
        "screen._callbacks", "screen._compositor", "screen._dirty_widgets", "screen._layout_required",
        "screen._on_timer_update", "screen._repaint_required", "screen._scroll_required", "storage._get_file",
        "sys._getframe", "widget._message_queue",
    }
)  # fmt: skip
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)  # imports in them happen when they are called


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file, of every module of the packages."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, names: Mapping[str, Path]) -> Iterator[str]:
    """The modules that a module imports as it is loaded, or for types."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                dotted = f"{node.module}.{alias.name}"
                if dotted in names or node.module in names:
                    yield dotted if dotted in names else node.module
        elif not isinstance(node, _LATER):
            yield from imported(node, names)


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The groups of modules that import each other: strongly connected components (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in edges[module]:
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in edges:
        if module not in number:
            visit(module)
    return found


def offences(root: Path) -> Iterator[str]:
    """Each offence as a sentence."""
    files = modules(root)
    trees = {name: ast.parse(path.read_text()) for name, path in files.items()}
    edges = {name: sorted(set(imported(tree, files)) - {name}) for name, tree in trees.items()}
    for circle in circles(edges):
        yield f"modules that import each other: {', '.join(circle)}"
    for path in (*files.values(), *(root / "tests").rglob("*.py")):
        if (lines := path.read_text().count("\n")) > MOST_LINES:
            yield f"{path.relative_to(root)} has {lines} lines, more than {MOST_LINES}"
    for path in (root / "tests").rglob("*.py"):
        if not {"programs", "shim", "torch_programs"} & {*path.parts}:  # observed programs, not tests
            for line, name in private_names(ast.parse(path.read_text())):
                yield f"{path.relative_to(root)}:{line} uses the private name {name}"
    places: dict[str, list[str]] = defaultdict(list)
    folders: dict[str, int] = defaultdict(int)
    for name, path in files.items():
        shown = str(path.relative_to(root))
        if not path.name.startswith("__"):
            places[f"file {path.name}"].append(shown)
            folders[str(path.parent.relative_to(root))] += 1
        for line, vague in vague_names(trees[name]):
            yield f"{shown}:{line} has the name {vague}: use the field's noun"
        for node in trees[name].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[f"class {node.name}"].append(shown)
    for what, where in places.items():
        if len(where) > 1:
            yield f"{what} is there {len(where)} times: {', '.join(where)}"
    for folder, count in folders.items():
        if count > MOST_MODULES:
            yield f"{folder} has {count} modules, more than {MOST_MODULES}"


def vague_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of each function, class, parameter, variable or attribute named by a verb like "told"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        else:
            continue
        if name not in KEPT_NAMES and VAGUE.search(re.sub("(?<=[a-z])(?=[A-Z])", "_", name)):
            yield node.lineno, name


def private_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of each private name of another module, class or object that a test uses or replaces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            yield from ((node.lineno, one.name) for one in node.names if _is_private(one.name))
        elif isinstance(node, ast.Attribute) and _is_private(node.attr):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner not in ("self", "cls", "super()") and f"{owner}.{node.attr}" not in FOREIGN:
                yield node.lineno, f"{owner}.{node.attr}"
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("setattr", "delattr"):
            for word in node.args[:2]:
                name = word.value if isinstance(word, ast.Constant) else ""
                last = str(name).rpartition(".")[2]
                if _is_private(last) and not any(one.endswith(f".{last}") for one in FOREIGN):
                    yield node.lineno, str(name)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def main() -> int:
    """Prints the offences; returns the exit status."""
    found = list(offences(ROOT))
    print("\n".join(found) or "layout: no circles, no name for two things")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
