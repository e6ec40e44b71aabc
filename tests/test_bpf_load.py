"""The verifier gives up where its thread has something else to do: a program is loaded all the same."""

from __future__ import annotations

import errno
import signal

import pytest

from probes.ebpf import bpfcall

CODE = bytes(16)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[set[signal.Signals]]:
    """The signals that waited at each try; the fourth succeeds."""
    waited: list[set[signal.Signals]] = []

    def call(_command: int, _attribute: object) -> int:
        waited.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        if len(waited) < 4:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return 7

    monkeypatch.setattr(bpfcall, "bpf_call", call)
    return waited


def test_a_program_that_was_interrupted_is_loaded_again(tries: list[set[signal.Signals]]) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert bpfcall.load_program("one", bpfcall.ProgramType.KPROBE, CODE) == 7
    assert len(tries) == 4
    assert all({signal.SIGALRM, signal.SIGCHLD, signal.SIGWINCH} <= waited for waited in tries)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_what_the_kernel_refuses_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def refuse(command: int, _attribute: object) -> int:
        calls.append(command)
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(bpfcall, "bpf_call", refuse)
    with pytest.raises(bpfcall.RefusedError, match="temporarily"):
        bpfcall.load_program("one", bpfcall.ProgramType.KPROBE, CODE)
    assert len(calls) < 20
