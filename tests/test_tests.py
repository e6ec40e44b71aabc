"""Tests stand for themselves: what two of them share is in a module that is no test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MODULES = [path.relative_to(TESTS) for path in sorted(TESTS.rglob("test_*.py"))]


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, and the names it takes from them, dotted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_there_are_tests() -> None:
    assert Path(__file__).relative_to(TESTS) in MODULES


@pytest.mark.slow
def test_no_test_module_imports_another() -> None:
    stems = {path.stem for path in MODULES}
    assert [
        (module, name)
        for module in MODULES
        for name in imported(TESTS / module)
        if stems & set(name.split(".")[:-1])
    ] == []
