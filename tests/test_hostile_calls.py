"""The daemon's filter of system calls: what is not listed is unknown, and kills nobody."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable

import pytest

from probes.process import sandbox
from probes.process.sandbox import Refused
from probes.process.syscall_numbers import numbers, of_a_daemon

MACHINE = os.uname().machine
LAST = 600  # beyond the newest number of any kernel
# what newer C libraries (glibc, musl), allocators and interpreters call by themselves
OF_LIBRARIES = """
    clone3 rseq statx close_range openat2 faccessat2 futex_waitv futex_wait futex_wake mseal membarrier
    map_shadow_stack getrandom prlimit64 epoll_pwait2 fchmodat2 memfd_create madvise set_robust_list
"""
KILL, LOAD, EQUAL, NOT_LESS, RETURN = 0x80000000, 0x20, 0x15, 0x35, 0x06
I386, X86_64, AARCH64, X32 = 0x40000003, 0xC000003E, 0xC00000B7, 0x40000000


def judged(rules: list[tuple[int, int, int, int]], architecture: int, number: int) -> int:
    """What a filter returns, as the kernel runs it."""
    at, value = 0, 0
    while True:
        code, right, wrong, operand = rules[at]
        at += 1
        if code == LOAD:
            value = (number, architecture)[operand // 4]
        elif code == RETURN:
            return operand
        else:
            holds = value == operand if code == EQUAL else value >= operand
            at += right if holds else wrong


@pytest.mark.parametrize(("machine", "own"), [("x86_64", X86_64), ("aarch64", AARCH64)])
@pytest.mark.parametrize("but", [False, True], ids=["allowed", "forbidden"])
def test_calls_of_another_architecture_fail_and_kill_nobody(machine: str, own: int, but: bool) -> None:
    named = numbers(of_a_daemon(machine), machine)
    rules = sandbox.filter_of(named, machine, Refused.UNKNOWN, but=but)
    for architecture in (I386, X86_64, AARCH64):
        for number in (0, 1, 11, 20, 101, 435):
            found = judged(rules, architecture, number)
            assert found != KILL
            if architecture != own:
                assert found == Refused.UNKNOWN.value
    if machine == "x86_64":
        assert judged(rules, own, X32 | 1) == Refused.UNKNOWN.value


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_newer_libraries_call_is_listed_and_rings_are_not(machine: str) -> None:
    listed = of_a_daemon(machine)
    assert set(OF_LIBRARIES.split()) <= listed
    assert not {name for name in listed if name.startswith("io_uring")}
    assert not {"ptrace", "process_vm_writev", "mount", "bpf_unknown"} & listed


def in_child(work: Callable[[], bool]) -> int:
    """The wait status of a process that does this under the daemon's filter."""
    child = os.fork()
    if child == 0:
        try:
            sandbox.allow_only(of_a_daemon(MACHINE), refused=Refused.UNKNOWN)
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1]


def test_each_call_that_is_not_listed_is_unknown_and_the_process_goes_on() -> None:
    listed = set(numbers(of_a_daemon(MACHINE), MACHINE))

    def work() -> bool:
        libc = ctypes.CDLL(None, use_errno=True)
        for number in set(range(LAST)) - listed:
            ctypes.set_errno(0)
            if libc.syscall(number, 0, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != errno.ENOSYS:
                os.write(2, f"system call {number}: {ctypes.get_errno()}\n".encode())
                return False
        return True

    assert len(listed) < LAST / 2
    assert in_child(work) == 0


def test_threads_and_processes_are_made_under_the_filter() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from probes.process import sandbox\n"
        "from probes.process.syscall_numbers import of_a_daemon\n"
        "import os, subprocess, tempfile, threading, socket, select\n"
        "sandbox.allow_only(of_a_daemon(os.uname().machine), refused=sandbox.Refused.UNKNOWN)\n"
        "one = threading.Thread(target=os.stat, args=('/',)); one.start(); one.join()\n"
        "assert subprocess.run(['/bin/sh', '-c', 'ls / | head -1']).returncode == 0\n"
        "with tempfile.TemporaryFile() as file: file.write(b'x' * 100000)\n"
        "select.epoll().close(); socket.socketpair()\n"
    )
    child = os.fork()
    if child == 0:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        os.execv(sys.executable, [sys.executable, "-I", "-c", script, root])
    assert os.waitpid(child, 0)[1] == 0
