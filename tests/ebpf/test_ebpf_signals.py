"""Probes are loaded while signals come by the thousand: each of them stops the kernel's verifier."""

from __future__ import annotations

import os
import signal

import pytest

from probes.ebpf import loader
from probes.stacks import programs

pytestmark = pytest.mark.ebpf

EVERY_S = 0.0007  # verifying one program takes longer


def test_probes_and_lines_are_loaded_while_signals_come() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, EVERY_S, EVERY_S)
    try:
        loaded = loader.load(loader.Options(watch_all=True, ring_bytes=1 << 20, own_pid=os.getpid()))
        try:
            lines = programs.load(loaded)
            assert lines.uprobes["on_line"]
            lines.module.close()
        finally:
            loaded.module.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard
