"""Where a function is probed: only where the kernel emulates, and only where nothing has changed before.

The instructions are written by the GNU assembler's rules, as ``objdump -d`` shows them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from probes.code import sites
from probes.code.sites import Site
from tests.opened_files import elf_of

PUSH_RBP, PUSH_R12 = "55", "41 54"
ENDBR64 = "f3 0f 1e fa"
RET = "c3"


def choose(*instructions: str) -> Site:
    return sites.choose(bytes.fromhex(" ".join(instructions)))


@pytest.mark.parametrize(
    "instruction",
    [PUSH_RBP, PUSH_R12, "90", "e9 00 00 01 00", "eb 10", "e8 00 00 01 00"],
    ids=["push rbp", "push r12", "nop", "jmp", "short jmp", "call"],
)
def test_what_the_kernel_emulates_is_probed_where_the_function_begins(instruction: str) -> None:
    assert choose(instruction, RET) == Site(0, cheap=True)


@pytest.mark.parametrize(
    ("instruction", "length"),
    [
        (ENDBR64, 4),
        ("66 90", 2),  # xchg %ax,%ax
        ("0f 1f 00", 3),  # nopl (%rax)
        ("0f 1f 44 00 00", 5),  # nopl 0x0(%rax,%rax,1)
        ("66 2e 0f 1f 84 00 00 00 00 00", 10),  # cs nopw 0x0(%rax,%rax,1)
        ("31 c0", 2),  # xor %eax,%eax
        ("4d 31 d2", 3),  # xor %r10,%r10
        ("29 c3", 2),  # sub %eax,%ebx
        ("48 89 f8", 3),  # mov %rdi,%rax
        ("4c 8b d4", 3),  # mov %rsp,%r10
        ("b8 15 00 00 00", 5),  # mov $0x15,%eax
        ("49 bb 01 02 03 04 05 06 07 08", 10),  # movabs $0x807060504030201,%r11
        ("8b 05 8a 0c 36 00", 6),  # mov 0x360c8a(%rip),%eax
        ("8d 46 f6", 3),  # lea -0xa(%rsi),%eax
        ("4c 8d 54 24 08", 5),  # lea 0x8(%rsp),%r10
        ("48 85 ff", 3),  # test %rdi,%rdi
    ],
)
def test_an_instruction_that_changes_nothing_a_probe_reads_is_walked_over(
    instruction: str, length: int
) -> None:
    assert choose(instruction, PUSH_RBP, RET) == Site(length, cheap=True)
    assert choose(ENDBR64, instruction, PUSH_R12, RET) == Site(4 + length, cheap=True)


@pytest.mark.parametrize(
    "instruction",
    [
        "48 83 ec 18",  # sub $0x18,%rsp: the return address is no longer on top
        "48 29 c4",  # sub %rax,%rsp
        "48 89 e5 5d",  # mov %rsp,%rbp; pop %rbp
        "48 89 c4",  # mov %rax,%rsp
        "48 8d 64 24 f8",  # lea -0x8(%rsp),%rsp
        "31 ff",  # xor %edi,%edi: an argument
        "31 f6",  # xor %esi,%esi
        "48 89 c2",  # mov %rax,%rdx
        "b9 01 00 00 00",  # mov $0x1,%ecx
        "4d 31 c0",  # xor %r8,%r8
        "41 b9 01 00 00 00",  # mov $0x1,%r9d
        "8b 35 8a 0c 36 00",  # mov 0x360c8a(%rip),%esi
        "48 8b 07",  # mov (%rdi),%rax: may fault, and the call would not have been seen
        "48 89 07",  # mov %rax,(%rdi)
        "48 85 ff 74 10",  # test %rdi,%rdi; je: some calls would not reach the push
        "0f 05",  # syscall
        "f3 0f 1e c8",  # rdsspd %eax: not an endbr64
        "66 31 c0",  # xor %ax,%ax: no prefix but REX is understood
    ],
)
def test_behind_any_other_instruction_nothing_is_probed(instruction: str) -> None:
    assert choose(instruction, PUSH_RBP, RET) == Site(0, cheap=False)
    assert choose(ENDBR64, instruction, PUSH_RBP, RET) == Site(0, cheap=False)


@pytest.mark.parametrize(
    "jump",
    ["75 fb", "eb fb", "e9 f8 ff ff ff", "0f 85 f7 ff ff ff"],  # to the push, one byte before the jump
    ids=["jne", "jmp short", "jmp", "jne near"],
)
def test_a_push_that_is_jumped_to_again_is_not_probed(jump: str) -> None:
    pop_nop = "5d 90"
    assert choose(ENDBR64, PUSH_RBP, pop_nop, jump, RET) == Site(0, cheap=False)
    assert choose(PUSH_RBP, pop_nop, jump, RET) == Site(0, cheap=True), "as the first one always was"


def test_a_jump_elsewhere_does_not_matter() -> None:
    assert choose(ENDBR64, PUSH_RBP, "5d 90", "75 fc", RET) == Site(4, cheap=True)
    assert choose(ENDBR64, PUSH_RBP, "5d 90", "75 f7", RET) == Site(4, cheap=True), "to the beginning"


def test_code_that_ends_anywhere_is_no_error() -> None:
    for length in range(12):
        code = bytes.fromhex(f"{ENDBR64} 4c 8d 54 24 08 {PUSH_R12} {RET}")[:length]
        assert sites.choose(code) == (Site(9, cheap=True) if length >= 11 else Site(0, cheap=False))


def test_in_a_large_library_each_site_is_an_instruction_as_the_disassembler_sees_it() -> None:
    """libstdc++ as the compiler built it; the disassembler is the witness."""
    found = [path for path in Path("/usr/lib").glob("*-linux-gnu/libstdc++.so.6") if path.exists()]
    if not found:
        pytest.skip("no libstdc++ here")
    (path,) = found[:1]
    image, data = elf_of(path), path.read_bytes()
    chosen = {
        start + site.offset
        for start, size in image.sizes_at.items()
        if (site := sites.choose(data[start : start + size])).cheap
    }
    assert len(chosen) > 500
    command = ["objdump", "-d", "-F", "--no-show-raw-insn", "-j", ".text", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (address, offset) = re.search(r"^([0-9a-f]+) <.*\(File Offset: 0x([0-9a-f]+)\)", text, re.M).groups()  # type: ignore[union-attr]
    shift = int(address, 16) - int(offset, 16)
    listing = re.findall(r"^ +([0-9a-f]+):\t(\w+)", text, re.M)
    mnemonics = {int(place, 16) - shift: mnemonic for place, mnemonic in listing}
    first, last = min(mnemonics), max(mnemonics)
    wrong = {
        hex(place): mnemonics.get(place)
        for place in chosen
        if first <= place <= last and mnemonics.get(place) not in {"push", "nop", "jmp", "call"}
    }
    assert wrong == {}
