"""Joins pictures of the screen into one SVG that shows them in turn: text stays text, nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OUTER = re.compile(r"<svg[^>]*viewBox=\"(?P<box>[^\"]*)\"[^>]*>(?P<inner>.*)</svg>", re.DOTALL)
_ID = re.compile(r"terminal-\d+")


def joined(pictures: Sequence[str], seconds: Sequence[float]) -> str:
    """One SVG of pictures of one size.

    Args:
        pictures: As Textual draws them.
        seconds: How long each is shown.
    """
    whole, still = sum(seconds), seconds.index(max(seconds))
    box, frames, rules, begin = "", [], [], 0.0
    for number, (picture, lasts) in enumerate(zip(pictures, seconds, strict=True)):
        found = _OUTER.search(picture)
        assert found is not None
        box = found["box"]
        frames.append(f'<g class="p{number}">{_ID.sub(f"t{number}", found["inner"])}</g>\n')
        shown = ((0.0, "hidden"), (begin, "visible"), (begin + lasts, "hidden"))
        steps = {round(100 * at / whole, 2): how for at, how in shown}
        if number == len(pictures) - 1:
            steps[100.0] = "visible"
        text = " ".join(f"{at:g}% {{ visibility: {how} }}" for at, how in steps.items())
        rules.append(f"@keyframes p{number} {{ {text} }}\n")
        # without motion, the one that is shown longest
        rules.append(f".p{number} {{ visibility: {'visible' if number == still else 'hidden'} }}\n")
        rules.append(
            "@media (prefers-reduced-motion: no-preference) "
            f"{{ .p{number} {{ animation: p{number} {whole:g}s step-end infinite }} }}\n"
        )
        begin += lasts
    return (
        f'<svg class="rich-terminal" viewBox="{box}" xmlns="http://www.w3.org/2000/svg">\n'
        f"<style>\n{''.join(rules)}</style>\n{''.join(frames)}</svg>\n"
    )
