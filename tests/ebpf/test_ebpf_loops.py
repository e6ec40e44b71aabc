"""Loops as older verifiers want them: no program runs on into the beginning of a loop that it is in.

Linux 6.1 refuses such a program ("back-edge"), newer kernels take it: so the compiled programs are read.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.ebpf import loader
from probes.stacks import programs

pytestmark = pytest.mark.ebpf

WIDE, JUMPS, ALWAYS, EXIT, CALL = 0x18, (5, 6), 0x05, 0x95, 0x85  # of an instruction's first byte


def following(code: bytes, at: int) -> list[tuple[int, bool]]:
    """(instruction that may come next, whether by a jump)."""
    first = code[8 * at]
    target = at + 1 + int.from_bytes(code[8 * at + 2 : 8 * at + 4], "little", signed=True)
    if first == EXIT:
        return []
    if first == ALWAYS:
        return [(target, True)]
    onward = [(at + (2 if first == WIDE else 1), False)]
    return [*onward, (target, True)] if first & 7 in JUMPS and first != CALL else onward


def runs_into_loops(code: bytes) -> list[int]:
    """Instructions after which a loop begins again without a jump: the verifier's own walk, depth first."""
    open_, met, found = {0}, {0}, []
    path = [(0, iter(following(code, 0)))]
    while path:
        at, rest = path[-1]
        for then, jump in rest:
            if then in open_ and not jump:
                found.append(at)
            if then not in met:
                met.add(then)
                open_.add(then)
                path.append((then, iter(following(code, then))))
                break
        else:
            open_.discard(at)
            path.pop()
    return found


@pytest.fixture
def main() -> Iterator[loader.Programs]:
    """The programs beside which those for lines are loaded."""
    made = loader.load(loader.Options(False, 1 << 16, os.getpid()))
    yield made
    made.module.close()


def verified(descriptor: int) -> int:
    """How many instructions the verifier looked at, by the kernel."""
    found = re.search(r"^verified_insns:\s+(\d+)$", Path(f"/proc/self/fdinfo/{descriptor}").read_text(), re.M)
    assert found is not None
    return int(found[1])


def test_such_a_loop_would_be_found() -> None:
    jump_over, work, jump_if, leave = b"\x05\0\1\0", b"\xb7\0\0\0", b"\x15\0\xfd\xff", b"\x95\0\0\0"
    assert runs_into_loops(b"".join(i + bytes(4) for i in (jump_over, work, work, jump_if, leave))) == [1]
    assert runs_into_loops(b"".join(i + bytes(4) for i in (work, work, jump_if, leave))) == []


@pytest.mark.long
def test_programs_have_loops_that_old_verifiers_take(main: loader.Programs) -> None:
    lines = programs.loaded(main, may_goto=False)
    for module in (main.module, lines.module):
        for name, code in module.compiled.programs.items():
            assert runs_into_loops(code) == [], name
    lines.module.close()


@pytest.mark.long
def test_a_kernel_with_may_goto_looks_at_a_loop_once_or_twice_and_not_at_each_of_its_steps(
    main: loader.Programs,
) -> None:
    """By its own account, of each program that walks through frames."""
    if not loader.is_release(platform.release(), programs.WITH_MAY_GOTO):
        pytest.skip("Linux 6.9 is the first with may_goto")
    looked = []
    for made in (programs.load(main), programs.loaded(main, may_goto=False)):
        assert made.timer is not None
        assert made.leave is not None
        looked.append([verified(one) for one in (made.uprobes["on_line"], made.timer, made.leave)])
        made.module.close()
    for fast, slow in zip(*looked, strict=True):
        assert fast < slow / 10


@pytest.mark.long
def test_without_may_goto_lines_are_looked_for_all_the_same(
    main: loader.Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, asked = programs.loaded, []

    def older(main: loader.Programs, *, may_goto: bool) -> programs.LinePrograms:
        asked.append(may_goto)
        if may_goto:
            raise loader.RefusedProbesError("unknown opcode e5")
        return whole(main, may_goto=may_goto)

    monkeypatch.setattr(programs, "loaded", older)
    programs.load(main).module.close()
    assert asked[-1] is False
