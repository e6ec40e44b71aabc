"""Loops as older verifiers want them: no program runs on into the beginning of a loop that it is in.

Linux 6.1 refuses such a program ("back-edge"), newer kernels take it: so the compiled programs are read. Nor
does a loop end by what was kept on the stack alone: Linux 5.15 forgets its bounds, and walks without end.
"""

from __future__ import annotations

import os
import platform
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.ebpf import loader
from probes.stacks import programs

pytestmark = pytest.mark.ebpf

WIDE, JUMPS, ALWAYS, EXIT, CALL = 0x18, (5, 6), 0x05, 0x95, 0x85  # of an instruction's first byte
BY_REGISTER, LOAD, WRITES, STACK = 0x08, 1, (0, 1, 4, 7), 10


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


def again(code: bytes) -> list[tuple[int, int, bool]]:
    """(instruction, that with which a loop begins again after it, whether by a jump): depth first."""
    open_, met, found = {0}, {0}, []
    path = [(0, iter(following(code, 0)))]
    while path:
        at, rest = path[-1]
        for then, jump in rest:
            if then in open_:
                found.append((at, then, jump))
            if then not in met:
                met.add(then)
                open_.add(then)
                path.append((then, iter(following(code, then))))
                break
        else:
            open_.discard(at)
            path.pop()
    return found


def runs_into_loops(code: bytes) -> list[int]:
    """Instructions after which a loop begins again without a jump: the verifier's own walk."""
    return [at for at, _then, jump in again(code) if not jump]


def ends_by_the_stack(code: bytes) -> list[int]:
    """Where loops begin that end by nothing but a comparison with what the stack kept."""
    before: dict[int, list[int]] = defaultdict(list)
    todo, met = [0], {0}
    while todo:
        at = todo.pop()
        for then, _jump in following(code, at):
            before[then].append(at)
            if then not in met:
                met.add(then)
                todo.append(then)
    loops: dict[int, set[int]] = defaultdict(set)
    for last, head, _jump in again(code):
        loop, todo = loops[head], [last]
        loop.add(head)
        while todo:
            if (at := todo.pop()) not in loop:
                loop.add(at)
                todo += before[at]
    ends = {
        head: [at for at in loop if any(then not in loop for then, _jump in following(code, at))]
        for head, loop in loops.items()
    }
    return sorted(head for head, by in ends.items() if all(by_the_stack(code, at) for at in by))


def by_the_stack(code: bytes, at: int) -> bool:
    """Whether a jump compares two registers of which one was loaded from the stack right before."""
    first, both = code[8 * at], {code[8 * at + 1] & 15, code[8 * at + 1] >> 4}
    if not first & BY_REGISTER:
        return False
    for back in range(at - 1, -1, -1):
        kind, registers = code[8 * back] & 7, code[8 * back + 1]
        if kind in JUMPS or not both:
            return False
        if kind in WRITES and registers & 15 in both:
            if kind == LOAD and registers >> 4 == STACK:
                return True
            both.discard(registers & 15)
    return False


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


def test_a_loop_whose_bound_lies_on_the_stack_would_be_found() -> None:
    """As clang compiled on_joined: the number of turns was kept on the stack beside the calls of helpers."""
    zero, one_more, leave = b"\xb7\x01\0\0" + bytes(4), b"\x07\x01\0\0\1\0\0\0", b"\x95\0\0\0" + bytes(4)
    kept = b"\x79\xa2\xf8\xff" + bytes(4)  # r2 = *(u64 *)(r10 - 8)
    by_it, turned = (b"\x5d" + both + b"\xfd\xff" + bytes(4) for both in (b"\x21", b"\x12"))  # r1 != r2
    by_number = b"\x55\x01\xfd\xff\x10\0\0\0"  # r1 != 16
    assert ends_by_the_stack(zero + one_more + kept + by_it + leave) == [1]
    assert ends_by_the_stack(zero + one_more + kept + turned + leave) == [1]
    assert ends_by_the_stack(zero + one_more + kept + by_number + leave) == []


def test_no_loop_ends_by_the_stack_alone(main: loader.Programs) -> None:
    for name, code in main.module.compiled.programs.items():
        assert ends_by_the_stack(code) == [], name


@pytest.mark.long
def test_programs_have_loops_that_old_verifiers_take(main: loader.Programs) -> None:
    lines = programs.loaded(main, may_goto=False)
    for module in (main.module, lines.module):
        for name, code in module.compiled.programs.items():
            assert runs_into_loops(code) == [], name
            assert ends_by_the_stack(code) == [], name
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
