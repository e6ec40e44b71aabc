"""Each feature with a test that holds it: ``python -m tests.feature_list`` prints the list.

Features are read from what the program is made of (its parser, its keys, its registries), so none can be
forgotten. A test holds one when it, or what it uses of tests/, names it: a flag and its command, a key,
a title.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

from textual.binding import Binding

import gputop
import gputop.ui
from gputop.analysis.causes.cause import every
from gputop.api.json_schema import DOCUMENTS
from gputop.commands import cli
from gputop.exchange import session_tables
from gputop.exchange.formats import FORMATS
from gputop.imports import detect
from gputop.query import mcp_server
from gputop.serve.metrics import metric_families
from gputop.ui.model.table import Column

TESTS = Path(__file__).resolve().parent
_KNOWN_BY = {"chrome": ("traceEvents",)}  # what tests of a trace write, rather than its reader's name
WORD = re.compile(r"[^\s'\"`,;()\[\]{}=|]+")


@dataclass(frozen=True)
class Feature:
    """What a user can do or see.

    Attributes:
        kind: "command", "flag", "key", …
        name: As the user knows it.
        named: The words of a test that names it: one of each group.
    """

    kind: str
    name: str
    named: tuple[frozenset[str], ...]


def one_of(*words: str) -> frozenset[str]:
    return frozenset(words)


_PRESSED = one_of("press", "press_keys", "keys")


def features() -> Iterator[Feature]:
    """All of them, in the order of the list."""
    yield from _flags()
    yield from _on_screen()
    for cause in every():
        yield Feature("cause", cause.number, (one_of(cause.number),))
    for name in FORMATS:
        yield Feature("export", name, (one_of(name), one_of("export")))
    for name in dir(detect):
        if name.startswith("read_") and name != detect.read_trace.__name__:
            words = one_of(name, name[5:], *_KNOWN_BY.get(name[5:], ()))
            yield Feature("import", name[5:], (words, one_of("import", "read_trace", name)))
    for table in session_tables.COLUMNS:
        yield Feature("table", table, (one_of(table, "COLUMNS"), one_of("export", table)))
    for name in DOCUMENTS:
        yield Feature("document", name, (one_of(name, "DOCUMENTS"),))
    for node in ast.walk(ast.parse(inspect.getsource(mcp_server))):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(one, ast.Call) for one in node.decorator_list
        ):
            yield Feature("tool of an assistant", node.name, (one_of(node.name),))
    for word in sorted(set(re.findall(r'"(gputop_\w+)"', inspect.getsource(metric_families)))):
        names = (word, *(word + end for end in ("_total", "_info", "_bucket", "_sum")))
        yield Feature("metric", word, (one_of(*names),))
    for name in gputop.__all__:
        yield Feature("library", name, (one_of(name, f"gputop.{name}"),))


def _flags() -> Iterator[Feature]:
    """Commands, and each flag: one that several commands have in the same words is one feature."""
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for command, parser in _parsers("", cli.whole_parser()):
        if command:
            yield Feature("command", f"gputop {command}", tuple(map(one_of, command.split())))
        for action in parser._actions:
            if action.option_strings and action.help is not argparse.SUPPRESS:
                groups[(*action.option_strings, action.help)].append(command)
    for (*flags, _help), commands in groups.items():
        where = [] if "" in commands else [one_of(*(command.split()[-1] for command in commands))]
        shown = f"gputop {'|'.join(commands)}".rstrip() + f" {'/'.join(map(str, flags))}"
        yield Feature("flag", shown, (frozenset(map(str, flags)), *where))


def _parsers(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                yield from _parsers(f"{name} {word}".strip(), child)


def _on_screen() -> Iterator[Feature]:
    """Keys by what they do, columns by their titles, tabs by their names."""
    found: dict[tuple[str, str], tuple[frozenset[str], ...]] = {}
    for info in pkgutil.walk_packages(gputop.ui.__path__, "gputop.ui."):
        module = import_module(info.name)
        for thing in vars(module).values():
            if inspect.isclass(thing) and thing.__module__ == module.__name__:
                for one in vars(thing).get("BINDINGS", ()):
                    binding = one if isinstance(one, Binding) else Binding(*one)
                    keys = frozenset(binding.key.split(","))
                    found["key", f"{thing.__name__}: {binding.key} ({binding.action})"] = (keys, _PRESSED)
                if name := vars(thing).get("name_shown"):
                    found["tab", name] = (one_of(name),)
            for column in thing if isinstance(thing, tuple) else ():
                if isinstance(column, Column):
                    words = {column.key, column.title, *column.title.split()}
                    found["column", f"{module.__name__.rpartition('.')[2]}: {column.title}"] = (
                        frozenset(words),
                    )
    for (kind, name), named in found.items():
        yield Feature(kind, name, named)


@dataclass
class _Piece:
    """A function, class or constant of tests/: the words in its strings, and the names that it uses."""

    words: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)


@cache
def tests() -> dict[str, set[str]]:
    """Test -> the words that it names, itself and by what it uses of tests/."""
    pieces: dict[str, _Piece] = {}
    for path in sorted(TESTS.rglob("*.py")):
        module = ".".join(("tests", *path.relative_to(TESTS).with_suffix("").parts))
        _read(module, ast.parse(path.read_text()), pieces)
    found = {}
    for name in pieces:
        if name.rpartition(".")[2].startswith("test_"):
            words, seen, ahead = set[str](), {name}, [name]
            while ahead:
                piece = pieces[ahead.pop()]
                words |= piece.words
                ahead += (new := (piece.uses & pieces.keys()) - seen)
                seen |= new
            found[name] = words
    return found


def _read(module: str, tree: ast.Module, pieces: dict[str, _Piece]) -> None:
    known: dict[str, str] = {}  # name here -> piece
    bodies: list[tuple[str, ast.stmt]] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests":
            known |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bodies.append((node.name, node))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bodies += [
                (one.id, node) for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
            ]
    known |= {name: f"{module}.{name}" for name, _node in bodies}
    for name, body in bodies:
        piece = pieces.setdefault(f"{module}.{name}", _Piece())
        for node in ast.walk(body):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                piece.words.update((node.value, *WORD.findall(node.value)))
            elif isinstance(node, ast.Name):
                piece.words.add(node.id)
                piece.uses.add(known.get(node.id, ""))
            elif isinstance(node, ast.arg):
                piece.uses.add(known.get(node.arg, ""))
            elif isinstance(node, ast.Attribute):
                piece.words.add(node.attr)
                if isinstance(node.value, ast.Name):
                    piece.uses.add(f"{known.get(node.value.id, '')}.{node.attr}")


def held(wanted: Iterable[Feature]) -> dict[Feature, str]:
    """Feature -> the test that names it and little else; empty: there is none."""
    words_of = tests()
    order = sorted(words_of, key=lambda name: (len(words_of[name]), name))
    return {
        one: next((name for name in order if all(group & words_of[name] for group in one.named)), "")
        for one in wanted
    }


def main() -> int:
    """Prints the list."""
    for feature, test in held(features()).items():
        module, _, name = test.rpartition(".")
        print(f"{feature.kind}\t{feature.name}\t{module.replace('.', '/')}.py::{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
