"""Masks likely secrets in command lines: a recording and a screen are shown to others.

Masked are values of options and variables with a secret's name, passwords in URLs, and texts that
have the form of a well-known token. Only the value is masked: the option stays visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MASK = "***"
_WORD = r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|(?:api|access|private)[-_]?key|auth|credentials?)"
# --token VALUE, --hf-token=VALUE, HF_TOKEN=VALUE, wandb.api_key=VALUE; not --tokens, --tokenizer
_NAMED = re.compile(
    rf"((?:-{{1,2}}|\b)(?:[\w.-]*[-_.])?{_WORD}(?:[-_](?:id|key|value))?)(=|:|$)(.*)",
    re.IGNORECASE | re.DOTALL,
)
_URL = re.compile(r"([a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@", re.IGNORECASE)
# forms that their makers document: GitHub, GitLab, Hugging Face, OpenAI, Slack, AWS, Google, JSON web tokens
_TOKEN = re.compile(
    r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_\w{20,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)


def masked(arguments: Iterable[str]) -> list[str]:
    """The arguments of a command, with ``***`` for likely secrets.

    An option that ends with such a name hides the argument behind it, if that is no option itself.
    """
    return list(_masked(arguments))


def _masked(arguments: Iterable[str]) -> Iterator[str]:
    hide = False
    for argument in arguments:
        if hide and not argument.startswith("-"):
            hide = False
            yield MASK
            continue
        named = _NAMED.fullmatch(argument)
        hide = bool(named) and argument.startswith("-") and not named[2]  # type: ignore[index]
        if named and named[2] and named[3]:
            yield f"{named[1]}{named[2]}{MASK}"
        else:
            yield _TOKEN.sub(MASK, _URL.sub(rf"\1:{MASK}@", argument))
