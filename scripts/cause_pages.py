"""Writes what gputop says of each cause into its page in docs/causes/: ``python -m scripts.cause_pages``.

The comment before a block names what the finding is of: a recording, or a made-up program of
tests/cause_stories.py. tests/test_explain_docs.py looks that nothing has changed since.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from gputop.explain.answer.output import report_to_text
from gputop.library.answers import explain
from tests.cause_stories import STORIES

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs" / "causes").glob("C??.md"))
_BLOCK = re.compile(r"^<!-- excerpt: (?P<source>\S+) -->\n```text\n(?:.*\n)*?```$", re.MULTILINE)


@cache
def output_of(source: str) -> str:
    """The report of a recording (``recordings/...``) or of a made-up program (``C01``)."""
    if source.startswith("recordings/"):
        return report_to_text(explain(ROOT / source))
    return report_to_text(STORIES[source]().report())


def finding(cause: str, source: str) -> str:
    """The first finding of a cause, as the report prints it."""
    parts = output_of(source).split("\n\n")
    return next(part.rstrip("\n") for part in parts if re.match(rf"\d+\. .* \[{cause}, ", part))


def with_excerpts(page: str) -> str:
    """A page whose blocks show what gputop says."""
    cause = page[2:5]

    def shown(block: re.Match[str]) -> str:
        source = block["source"]
        return f"<!-- excerpt: {source} -->\n```text\n{finding(cause, source)}\n```"

    return _BLOCK.sub(shown, page)


def main() -> None:
    """Writes all pages."""
    for path in PAGES:
        path.write_text(with_excerpts(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
