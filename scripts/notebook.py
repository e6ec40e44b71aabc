#!/usr/bin/env python3
"""Runs the code cells of docs/library.ipynb and writes their output into it; needs no Jupyter."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "library.ipynb"


def with_outputs(text: str) -> str:
    """The notebook with the outputs of its cells, run in order from its own folder, as Jupyter does."""
    notebook = json.loads(text)
    space: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(NOTEBOOK.parent)
    try:
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, cell in enumerate(code, 1):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), space)
            lines = said.getvalue().splitlines(keepends=True)
            cell["execution_count"] = number
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    finally:
        os.chdir(before)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Writes the notebook."""
    NOTEBOOK.write_text(with_outputs(NOTEBOOK.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
