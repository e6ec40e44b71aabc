#!/usr/bin/env python3
"""Writes docs/library.md from the docstrings of the public names."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gputop

PAGE = Path(__file__).resolve().parent.parent / "docs" / "library.md"
BEGIN, END = "<!-- names: scripts/library_page.py -->", "<!-- end of names -->"
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example):\n((?:    .*\n|\n)*)", re.MULTILINE)
_ITEM = re.compile(r"^    (\w[\w, ]*): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def markdown(docstring: str) -> str:
    """A docstring as the project writes them: text, then sections."""
    parts = []
    text = inspect.cleandoc(docstring) + "\n"
    first = _SECTION.search(text)
    parts.append(text[: first.start() if first else None].replace("``", "`").strip())
    for section in _SECTION.finditer(text):
        name, body = section[1], section[2]
        if name == "Example":
            # the empty line ends the output for doctest
            parts.append(f"```pycon\n{inspect.cleandoc(body)}\n\n```")
            continue
        body = body.replace("``", "`")
        if name in ("Returns", "Yields"):
            parts.append(f"{name}: {' '.join(body.split())}")
        else:
            rows = [f"- `{item[1]}`: {' '.join(item[2].split())}" for item in _ITEM.finditer(body)]
            parts.append(f"{name}:\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def names() -> str:
    """All public names: functions, the session, results, errors."""
    values = {name: getattr(gputop, name) for name in gputop.__all__}
    functions = [name for name, value in values.items() if inspect.isfunction(value)]
    errors = [
        name
        for name, value in values.items()
        if inspect.isclass(value) and issubclass(value, gputop.GputopError)
    ]
    results = [name for name, value in values.items() if dataclasses.is_dataclass(value)]
    parts = [
        f"### {_signature(name, values[name])}\n\n{markdown(values[name].__doc__)}" for name in functions
    ]
    parts += ["## Session", markdown(gputop.Session.__doc__ or ""), *_members(gputop.Session)]
    parts += ["## What is returned", *(_fields(name, values[name]) for name in results)]
    parts += ["## Errors", "\n".join(_error(name, values[name]) for name in errors)]
    return "\n\n".join(parts)


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=_short(one.annotation)) for one in signature.parameters.values()]
    text = str(
        signature.replace(parameters=parameters, return_annotation=_short(signature.return_annotation))
    )
    return f"`{name}{text}`".replace("'", "")


def _short(annotation: Any) -> Any:
    """A parameter's or result's type for readers: documents are described by their schema."""
    return "dict" if "Document" in str(annotation) else annotation


def _members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if isinstance(member, property) and not name.startswith("_"):
            returned = inspect.signature(member.fget).return_annotation if member.fget else ""
            yield f"### `session.{name}: {returned}`\n\n{markdown(member.__doc__ or '')}"
        elif inspect.isfunction(member) and not name.startswith("_"):
            heading = _signature(f"session.{name}", member).replace("(self, ", "(").replace("(self)", "()")
            yield f"### {heading}\n\n{markdown(member.__doc__ or '')}"


def _fields(name: str, kind: Any) -> str:
    fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind))
    return f"### `{name}`\n\n{markdown(kind.__doc__)}\n\nFields: {fields}."


def _error(name: str, kind: type[Exception]) -> str:
    return f"- `{name}`: {(kind.__doc__ or '').splitlines()[0]}"


def with_names(page: str) -> str:
    """The page with the text between its two marks."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{names()}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Writes the page."""
    PAGE.write_text(with_names(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
