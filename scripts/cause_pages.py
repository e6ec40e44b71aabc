"""Writes gputop's output for each cause into its page in docs/causes/: ``python -m scripts.cause_pages``.

The comment before a block names the source of the finding: a recording, or a made-up program of
tests/cause_stories.py. tests/test_explain_docs.py checks that nothing has changed since.
"""

from __future__ import annotations

import re
import textwrap
from functools import cache
from pathlib import Path

from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.causes import CATALOGUE, CAUSES
from gputop.api.functions import explain
from tests.cause_stories import STORIES

ROOT = Path(__file__).resolve().parent.parent
USUAL = "proved | idle"  # the best level and the kind of most causes
INDEX = ROOT / "docs" / "causes.md"
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
    """A page whose blocks are gputop's output."""
    cause = page[2:5]

    def shown(block: re.Match[str]) -> str:
        source = block["source"]
        return f"<!-- excerpt: {source} -->\n```text\n{finding(cause, source)}\n```"

    return _BLOCK.sub(shown, page)


def with_index(text: str) -> str:
    """The index, with the causes, the classes and the order of the registry; levels are those of before."""
    row = re.compile(r"^\| \[(C\d\d)\].* \| (\w+ \| \w+) \|$", re.MULTILINE)
    level = dict(row.findall(text))
    rows = "".join(
        f"| [{one.number}](causes/{one.number}.md) | {one.title} | {level.get(one.number, USUAL)} |\n"
        for one in CAUSES
    )
    listed = re.compile(r"(?:^\| \[C\d\d\]\(.*\n)+", re.MULTILINE)
    text = listed.sub(lambda _found: rows, text)

    def of_class(found: re.Match[str]) -> str:
        numbers = ", ".join(one.number for one in CAUSES if str(one.kind) == found["kind"])
        return f"{found['title']}{numbers}{found['rest']} |"

    pattern = r"^(?P<title>\| [^|]*\(`(?P<kind>\w+)`\) \| )C[^;|]*?(?P<rest>(?:;[^|]*?)?) \|$"
    text = re.sub(pattern, of_class, text, flags=re.MULTILINE)
    order = textwrap.fill(", ".join(one.number for one in CATALOGUE) + ".", 116)
    return re.sub(r"(The order is:\n\n).*?(?=\n\n)", lambda found: found[1] + order, text, flags=re.DOTALL)


def main() -> None:
    """Writes all pages."""
    INDEX.write_text(with_index(INDEX.read_text(encoding="utf-8")), encoding="utf-8")
    for path in PAGES:
        path.write_text(with_excerpts(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
