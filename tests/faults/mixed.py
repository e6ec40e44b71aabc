"""M1 to M10: two faults at once, three to one; both must be listed, the larger one first."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.scenario import (
    EITHER,
    MS,
    PROVED,
    WARM,
    Draw,
    Expected,
    Maker,
    Scenario,
    lines,
    role,
    scenario,
)
from tests.faults.single import made

LARGE_MS = 9.0


@dataclass(frozen=True, slots=True)
class Part:
    """One half of a step: what opens the gap, what fills it for so many ms (``NS`` stands for it)."""

    cause: str
    opens: str
    fills: str
    knob: str = ""
    python: bool = True


PARTS = {
    part.cause: part
    for part in (
        Part("C01", "C15 d2h 0 4 page\nC15 sync 0", "C01 burn NS"),
        Part("C02", f"C15 d2h 0 {1 << 20} page\nC15 sync 0", "C02 burn NS"),
        Part("C03", "C15 devsync", "C03 burn NS"),
        Part("C12", "C15 sync 0", f"C12 burn NS\n- h2d 0 {1 << 20} pin"),
        Part("C18", "C15 sync 0", "C18~C03 write NS", python=False),
        Part("C19", "C15 sync 0", "C19~C03 net PORT"),
        Part("C20", "C15 sync 0", f"C20 malloc {4 << 20}", knob="SIMGPU_MALLOC_NS"),
        Part("C21", "C15 sync 0", f"C21 hostalloc {4 << 20}", knob="SIMGPU_HOST_ALLOC_NS"),
    )
}
PAIRS = (
    ("C01", "C03"),
    ("C03", "C01"),
    ("C02", "C20"),
    ("C20", "C01"),
    ("C12", "C21"),
    ("C18", "C01"),
    ("C19", "C02"),
    ("C02", "C12"),
    ("C21", "C03"),
    ("C03", "C19"),
)


def _mixture(name: str, large: str, small: str) -> Maker:
    def make(draw: Draw) -> Scenario:
        draw.how(streams=False)
        big = draw.near("large_ms", LARGE_MS)
        # each wait takes a third of what follows it, or more: else that is C28
        kernel, steps = draw.kernel(big * 4 / 3, least=big * 0.7, most=big)
        halves, env, server_ms = [], {}, 0.0
        for cause, ms in ((large, big), (small, big / 3)):
            part = PARTS[cause]
            fills = part.fills.replace("NS", str(int(ms * MS)))
            halves += [f"- launch 0 {kernel // 2} 1", part.opens, fills]
            if part.knob:
                env[part.knob] = str(int(ms * MS))
            if "PORT" in fills:
                server_ms = ms
        script = role("main") + lines(WARM, (steps, lines(*halves)))
        within = "C03" if large == "C18" else ""
        expected = (Expected(large, EITHER if large in ("C12", "C20", "C21") else PROVED, within=within),)
        expected += (Expected(small, EITHER if small in ("C12", "C20", "C21") else PROVED),)
        more: dict[str, object] = {"env": env, "server_ms": server_ms}
        if not (PARTS[large].python and PARTS[small].python):
            more["language"] = "c"
        return made(name, f"{large} and a third of {small}", draw, script, steps, *expected, **more)

    return make


for _number, (_large, _small) in enumerate(PAIRS, 1):
    scenario(f"M{_number}")(_mixture(f"M{_number}", _large, _small))
