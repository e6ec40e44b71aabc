#!/usr/bin/env python3
"""Writes the table of docs/files.md from what each file says of itself in its first lines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "files.md"
BEGIN, END = "<!-- files: scripts/house_map.py -->", "<!-- end of files -->"


def purpose(path: Path) -> str:
    """The first sentence or two that a file says of itself."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        first = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
    else:
        comment = re.match(r"/\*(.*?)(\*/|\n \*\n)", text, re.DOTALL)
        first = re.sub(r"\n \* ?", " ", comment[1]) if comment else ""
    return " ".join(first.split()).replace("``", "`").replace("|", "\\|").strip()


def table() -> str:
    """One table a folder, the packages from top to bottom."""
    lines = []
    for package in ("gputop", "replay", "probes"):
        for folder in sorted({path.parent for path in (ROOT / package).rglob("*.py")}):
            about = purpose(folder / "__init__.py")
            lines += [f"### {folder.relative_to(ROOT)}/", "", about, "", "| file | what |", "|---|---|"]
            files = [*folder.glob("*.py"), *folder.glob("*.c"), *(folder / "bpf").glob("*.c")]
            for path in sorted(files):
                if path.name != "__init__.py":
                    lines.append(f"| `{path.relative_to(ROOT)}` | {purpose(path)} |")
            lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Replaces what stands between the two marks."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table()}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
