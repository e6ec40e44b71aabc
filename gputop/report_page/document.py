"""A whole HTML document with style and script in it, which loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from gputop.report_page.markup import sentence, text


def document(
    title: str,
    about: Iterable[tuple[str, str]],
    first: str,
    sections: Iterable[tuple[str, str]],
    held: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """Return the text of the file.

    Args:
        title: The title, as text.
        about: Facts of the recording: (word, text) each.
        first: HTML before the sections.
        sections: (head, content as HTML).
        held: Documents inside of the page, for programs, by the id of their element.
    """
    folder = files("gputop.report_page")
    style, script = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    placed = [(f"s{number}", head, content) for number, (head, content) in enumerate(sections)]
    links = "".join(f'<li><a href="#{name}">{head}</a></li>' for name, head, _content in placed)
    body = "".join(
        f'<section id="{name}"><h2>{head}</h2>{content}</section>' for name, head, content in placed
    )
    facts = "".join(f"<div><dt>{text(word)}</dt><dd>{sentence(value)}</dd></div>" for word, value in about)
    inside = "".join(
        f'<script type="application/json" id="{name}">{_inside(value)}</script>'
        for name, value in (held or {}).items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{style}</style></head><body>"
        f"<header><h1>{text(title)}</h1><dl>{facts}</dl></header>"
        f'<main>{first}<nav aria-label="contents"><ul>{links}</ul></nav>{body}</main>'
        '<div id="status" role="status"></div>'
        f"{inside}<script>{script}</script></body></html>\n"
    )


def _inside(value: Mapping[str, Any]) -> str:
    """Return JSON whose "<" cannot end the script that holds it."""
    return json.dumps(value).replace("<", "\\u003c")


def _hash(code: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
