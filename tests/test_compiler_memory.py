"""The compiler's code does not stay in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.compiler_memory import code_of_the_compiler, return_memory
from probes.loader import SHIM, import_bcc

MAPS = """\
55d0a000-55d0b000 r-xp 00000000 08:01 11 /usr/bin/python3.11
7f10000000-7f10400000 r--p 00000000 08:01 12 /usr/lib/llvm-14/lib/libLLVM-14.so.1
7f10400000-7f13000000 r-xp 00400000 08:01 12 /usr/lib/llvm-14/lib/libLLVM-14.so.1
7f13000000-7f13100000 rw-p 03000000 08:01 12 /usr/lib/llvm-14/lib/libLLVM-14.so.1
7f20000000-7f22000000 r-xp 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/libclang-cpp.so.14
7f30000000-7f30100000 r-xp 00000000 08:01 14 /usr/lib/x86_64-linux-gnu/libbcc.so.0.26.0
7f40000000-7f40100000 r-xp 00000000 08:01 15 /home/libLLVM/libc.so.6
"""


def test_only_code_is_given_back_and_only_the_compiler_s() -> None:
    assert code_of_the_compiler(MAPS.splitlines()) == [
        (0x7F10400000, 0x7F13000000),
        (0x7F20000000, 0x7F22000000),
        (0x7F30000000, 0x7F30100000),
    ]


def _resident_code() -> int:
    """kB of the compiler's code in memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = bool(code_of_the_compiler([line]))
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.mark.ebpf
def test_it_can_be_used_again_after_it_was_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCC_KERNEL_SOURCE", str(SHIM))
    bcc = import_bcc()
    for _ in range(2):
        bcc.BPF(text=b"int nothing(void *ctx) { return 0; }")
        assert _resident_code() > 10_000
        return_memory()
        assert _resident_code() < 1_000
