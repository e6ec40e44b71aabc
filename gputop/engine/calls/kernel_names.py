"""Short names for kernels: C++ templates are reduced to the words that differ between kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_WORD: Final = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*|\d+")
_ANONYMOUS: Final = re.compile(r"\((?:anonymous namespace|unnamed)\)::|<unnamed>::|_GLOBAL__N__\w+::")
_LAMBDA: Final = re.compile(r"\{lambda\([^{}]*\)#\d+\}")
_SPACES: Final = re.compile(r"^(?:at::native::|at::cuda::|at::|c10::cuda::|c10::|thrust::\w+::|cub::\w+::)+")
# words without meaning for the work of a kernel
_PLAIN: Final = frozenset(
    """
    void int unsigned char const long short bool std array Array TensorIteratorBase detail operator true false
    type typename class struct
    """.split()  # noqa: SIM905 - a list is longer
)
# functions with generic names: their work is in the template arguments
_GENERIC: Final = re.compile(r"(?:\w+::)*(?:[Kk]ernel\d?|device_kernel|enable_if|run|launch)")
_MOST: Final = 6  # words that distinguish kernels
_LONGEST: Final = 80  # characters


def short_names(names: Sequence[str]) -> list[str]:
    """Return a short name for each; different kernels have different ones."""
    bases, words = zip(*map(_parts, names), strict=True) if names else ((), ())
    groups: dict[str, dict[str, list[str]]] = {}
    for name, base, own in zip(names, bases, words, strict=True):
        groups.setdefault(base, {})[name] = own
    short: dict[str, str] = {}
    used: set[str] = set()
    for base, members in groups.items():
        for name, own in _distinguished(base, members).items():
            short[name] = _free(own, used)
    return [short[name] for name in names]


def _free(name: str, used: set[str]) -> str:
    """The name, with a number if another kernel has it."""
    unique, number = name, 2
    while unique in used:
        unique, number = f"{name} #{number}", number + 1
    used.add(unique)
    return unique


def _parts(name: str) -> tuple[str, list[str]]:
    """(the function without its template arguments, the words in these)."""
    text = _ANONYMOUS.sub("", name.strip())
    text = _LAMBDA.sub("lambda", text).removeprefix("void ").strip()
    base, depth, end = [], 0, len(text)
    for place, sign in enumerate(text):
        if sign == "<":
            depth += 1
        elif sign == ">":
            depth = max(depth - 1, 0)
        elif sign == "(" and depth == 0 and text[place : place + 2] != "()":
            end = place
            break
        elif depth == 0:
            base.append(sign)
    whole = "".join(base).strip().removesuffix("::") or text
    template = text[text.find("<") : end] if "<" in text[:end] else ""
    cut_off = "".join(base).endswith("::")  # the profiler cut the name there
    return whole if cut_off else _SPACES.sub("", whole) or whole, _WORD.findall(template)


def _distinguished(base: str, members: dict[str, list[str]]) -> dict[str, str]:
    """Names of kernels of one function, with the words that not all of them have."""
    alone = len(members) == 1
    if alone and not _GENERIC.fullmatch(base):
        return dict.fromkeys(members, _cut(base))
    common = set() if alone else set.intersection(*(set(words) for words in members.values()))
    short: dict[str, str] = {}
    for name, words in members.items():
        own = list(dict.fromkeys(word for word in words if word not in common))
        distinct = [word for word in own if word not in _PLAIN and not word.isdigit()]
        rest = [word for word in own if word not in distinct]
        shown = [_cut(word.rpartition("::")[2]) for word in (*distinct, *rest)]
        for count in range(min(2, len(shown)), _MOST + 1):
            inner = ", ".join(dict.fromkeys(shown[:count]))
            short[name] = f"{_cut(base)}<{inner}>" if inner else _cut(base)
            if count >= len(shown) or list(short.values()).count(short[name]) == 1:
                break
    return short


def _cut(text: str) -> str:
    """A long name without its middle: kernels of libraries differ in the ends of their names."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 + 1 :]}"
