"""``gputop explain --markdown``: what is pasted into an issue shows what was found, and only that."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gputop.analysis.answer.report_output import harmless, report_to_markdown
from gputop.commands import cli
from gputop.engine.calls.stack_table import Line
from gputop.format import escape_text
from tests import fake_reports, hostile_names
from tests.each_recording import FILES as EACH
from tests.each_recording import REPORTS, report_of

RECORDINGS = sorted((Path(__file__).resolve().parents[1] / "recordings").glob("*.msgpack"))
HOSTILE = (
    *(name[:200] for name in hostile_names.NAMES),
    "[click](http://evil.example/)",
    "![x](//evil.example/p.png)",
    "@everyone",
    "owner/name#123",
    "#1",
    "GH-26",
    "https://evil.example/?q=1",
    "www.evil.example",
    "a@evil.example",
    "`` ` ```",
    "~~gone~~",
    "**bold** _it_ <b>b</b>",
    "[x]: http://evil.example",
    "[x] done",
    "1. one",
    "- item",
    "$x$",
    "| a | b |",
    "deadbeefcafe",
    ":smile:",
    "&lt;img&gt;",
    "\\`rm\\`",
)


def parsed(text: str) -> list[Token]:
    """As a reader of CommonMark with HTML, tables and strikethrough sees it, nested tokens included."""
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = reader.parse(text)
    return [one for token in tokens for one in (token, *(token.children or ()))]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_is_shown_as_it_is_and_never_becomes_markup_or_a_link(name: str) -> None:
    tokens = parsed("- seen " + harmless(f"at {name} in f()"))
    kinds = {token.type for token in tokens}
    block = ("bullet_list", "list_item", "paragraph")
    assert kinds <= {*(f"{one}_{end}" for one in block for end in ("open", "close")), "inline"} | {
        "text",
        "code_inline",
    }
    shown = "".join(token.content for token in tokens if token.type in ("text", "code_inline"))
    assert "".join(shown.split()) == "".join(f"seen at {escape_text(name)} in f()".split())
    open_text = "".join(token.content for token in tokens if token.type == "text")
    assert not re.search(r"[@#<>&$|*_~\\]|://|www\.|GH-|\b[0-9a-f]{7,}\b|:\w+:", open_text)


def test_a_report_made_of_hostile_names_holds_the_headings_and_lists_of_any_other() -> None:
    def shape(name: str) -> list[tuple[str, str]]:
        one = fake_reports.finding(
            title=name,
            api=name,
            evidence=(name,),
            ruled_out=(name,),
            advice=(name,),
            line=Line(name, 3, name),
        )
        chain = tuple(replace(link, text=f"{name} was running") for link in one.chain)
        report = replace(fake_reports.report(replace(one, chain=chain)), verdict=name, notes=(name,))
        return [(token.type, token.tag) for token in parsed(report_to_markdown(report)) if token.block]

    plain = shape("name")
    for name in HOSTILE:
        assert shape(name) == plain, name


@REPORTS
@pytest.mark.slow
@pytest.mark.parametrize("recording", EACH)
def test_it_says_the_verdict_every_finding_its_fix_and_how_sure(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(recording)
    status = cli.run(["explain", "--markdown", str(recording)])
    shown = " ".join(
        "".join(child.content for child in token.children or ())
        for token in parsed(capsys.readouterr().out)
        if token.type == "inline"
    )
    assert status == (3 if report.findings else 0)

    def seen(text: str) -> bool:
        return text.replace("`", "") in shown.replace("`", "")

    assert seen(report.verdict)
    for finding in report.findings:
        assert seen(f"({finding.cause}, {finding.level})")
        texts = [*finding.evidence, *finding.ruled_out, *finding.advice, finding.title]
        assert all(map(seen, (*texts, *(link.text for link in finding.chain))))
    assert all(map(seen, report.notes))
    assert seen("No finding") == (not report.findings)


def test_markdown_and_json_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "--markdown", "--json", str(RECORDINGS[0])]) == 2
    assert "--json and --markdown exclude each other" in capsys.readouterr().err
    assert cli.run(["explain", "--json", str(RECORDINGS[0])]) in (0, 3)
    assert json.loads(capsys.readouterr().out)["schema"] == "gputop.explain/1"
