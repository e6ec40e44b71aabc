"""Which mutants of a file are tried: cosmic-ray's, without those that cannot change what runs."""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutants.mutant import Mutant


def chosen(path: Path, name: str, count: int, seed: int) -> list[Mutant]:
    """A sample of the mutants of a file, in the order of its lines.

    First a place is drawn, then one of the changes that are possible there: else what has many neighbours
    (a comparison has six) would be most of the sample.

    Args:
        path: Where the file is.
        name: What it is called in the tree.
        count: How many; of a file that has fewer places, one for each of them.
        seed: The same seed draws the same mutants of the same file.
    """
    source = path.read_text(encoding="utf-8")
    quiet = _not_run(source)
    tree = get_ast(source)
    places: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for operator in sorted(cosmic_ray.plugins.operator_names()):
        kind = cosmic_ray.plugins.get_operator(operator)
        if kind.arguments():
            continue
        positions = (start for node in ast_nodes(tree) for start, _ in kind().mutation_positions(node))
        for occurrence, start in enumerate(positions):
            if not any(begin <= start < end for begin, end in quiet):
                places.setdefault(start, []).append((operator, occurrence))
    random = Random(f"{name} {seed}")
    order = sorted(places)
    random.shuffle(order)
    mutants: list[Mutant] = []
    for place in order:
        if len(mutants) == count:
            break
        operator, occurrence = random.choice(places[place])
        try:
            changed = mutate_code(source, cosmic_ray.plugins.get_operator(operator)(), occurrence)
        except AttributeError:  # cosmic-ray's own, at exceptions whose names have dots
            changed = None
        mutant = None if changed is None else _mutant(name, operator, source, changed)
        if mutant is not None and mutant.key not in {one.key for one in mutants}:
            mutants.append(mutant)
    return sorted(mutants, key=lambda mutant: (mutant.line, mutant.becomes))


def _mutant(name: str, operator: str, source: str, changed: str) -> Mutant | None:
    """None: the same program, or none at all."""
    try:
        if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source)):
            return None
    except SyntaxError:
        return None
    before, after = source.split("\n"), changed.split("\n")
    line = next(number for number, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    return Mutant(name, operator, line + 1, before[line].strip(), after[line].strip(), changed)


def _not_run(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations stand, which nobody evaluates, and what dataclasses are decorated with."""
    found = []
    for node in ast.walk(ast.parse(source)):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign | ast.arg):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.ClassDef):
            parts = [*node.decorator_list]
        found += [
            ((part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0))
            for part in parts
            if isinstance(part, ast.expr)
        ]
    return found
