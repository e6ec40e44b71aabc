"""A confined process can do what it was allowed, and nothing else."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from probes.process import sandbox
from probes.process.sandbox import LOADING, Limits, Refused
from probes.process.syscall_numbers import numbers
from tests.confined_child import in_child, needs_root, status
from tests.waiting import HANGS_S

needs_filter = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="the filter is for these two"
)


def limits(cpu_s: int = 5) -> Limits:
    """A gigabyte beyond what a forked test has: all that the tests before it have mapped."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return Limits(memory_bytes=mapped + (1 << 30), cpu_s=cpu_s)


def confined() -> None:
    sandbox.confine(limits(), LOADING)


FORBIDDEN: dict[str, Callable[[], object]] = {
    "a socket": socket.socket,
    "another program": lambda: os.execv("/bin/true", ["true"]),
    "a process": os.fork,
    "a signal": lambda: os.kill(os.getppid(), 0),
    "another session": os.setsid,
    "a folder": lambda: os.mkdir("/tmp/made-by-a-confined-process"),
    "a pipe": os.pipe,
}


@needs_filter
@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_is_not_allowed_fails(what: str) -> None:
    assert in_child(confined, FORBIDDEN[what]) == "EPERM"


@needs_filter
def test_what_is_allowed_works() -> None:
    assert in_child(confined, lambda: Path("/etc/passwd").read_bytes() != b"") == "True"
    assert in_child(confined, lambda: ctypes.CDLL("libm.so.6").abs(-3)) == "3"


@needs_filter
def test_without_open_in_the_list_no_file_can_be_opened() -> None:
    narrow = LOADING - {"open", "openat"}
    assert in_child(lambda: sandbox.allow_only(narrow), lambda: os.open("/etc/passwd", 0)) == "EPERM"


@needs_filter
def test_what_is_not_allowed_can_kill() -> None:
    kills = lambda: sandbox.allow_only(LOADING, refused=Refused.KILLS)  # noqa: E731
    assert in_child(kills, socket.socket) == "SIGSYS"


@needs_filter
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has them")
def test_the_x32_numbers_of_allowed_calls_are_refused() -> None:
    def call(number: int) -> int:
        ctypes.set_errno(0)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(ctypes.c_long(number))
        return ctypes.get_errno()

    getpid = 39
    assert in_child(confined, lambda: call(getpid)) == "0"
    assert in_child(confined, lambda: call(getpid | 0x40000000)) == str(errno.EPERM)


@needs_filter
@pytest.mark.skipif(platform.machine() != "x86_64", reason="its 32-bit numbers are other calls")
def test_a_call_of_another_architecture_fails() -> None:
    """By int 0x80, where 20 is getpid; a filter that looked at numbers alone would take it for writev."""

    def old_call() -> None:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
        result = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        if result < 0:
            raise OSError(-result, os.strerror(-result))

    # SIGSEGV: a kernel without 32 bits
    assert in_child(confined, old_call) in ("EPERM", "SIGSEGV")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_name_of_the_list_is_known_and_none_makes_a_process_or_a_connection(machine: str) -> None:
    allowed = set(numbers(LOADING, machine))
    never = ("clone", "clone3", "fork", "vfork", "execve", "connect", "kill", "tgkill", "ioctl", "prlimit64")
    assert len(allowed) > 50
    assert not allowed & set(numbers(never, machine))
    rules = sandbox.filter_of(sorted(allowed), machine, Refused.FAILS)
    assert rules[1][3] == {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    assert len(rules) < 4096


def test_a_name_that_nobody_knows_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no number is known of reed"):
        numbers(["read", "reed"], "x86_64")


def test_memory_beyond_the_limit_is_refused() -> None:
    assert in_child(confined, lambda: len(bytearray(1 << 20))) == str(1 << 20)
    assert in_child(confined, lambda: len(bytearray(2 << 30))) == "MemoryError"


def test_limits_hold_for_files_cores_and_cpu() -> None:
    def files() -> int:
        while True:
            os.open("/etc/passwd", os.O_RDONLY)

    def spin() -> None:
        while True:
            pass

    assert in_child(lambda: sandbox.limit(limits()), files) == "EMFILE"
    assert (
        in_child(lambda: sandbox.limit(limits()), lambda: resource.getrlimit(resource.RLIMIT_CORE))
        == "(0, 0)"
    )
    assert in_child(lambda: sandbox.limit(limits(cpu_s=1)), spin) == "SIGKILL"


def test_no_file_can_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    file = tmp_path / "grows"
    file.touch()
    file.chmod(0o666)
    assert in_child(lambda: sandbox.limit(limits()), lambda: file.write_bytes(b"x")) in ("SIGXFSZ", "EFBIG")


@needs_root
@needs_filter
def test_root_becomes_nobody_without_a_capability() -> None:
    assert in_child(confined, lambda: status("Uid", "Gid", "Groups")) == " ".join(["65534"] * 8 + [""])
    sets = in_child(confined, lambda: status("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
    assert set(sets.replace(" ", "")) == {"0"}
    assert in_child(confined, lambda: status("NoNewPrivs", "Seccomp")) == "1 2"
    assert in_child(confined, lambda: os.stat("/proc/self/mem").st_uid) == "0", "not to be looked into"


@needs_root
@needs_filter
def test_in_its_namespaces_there_is_nobody_else_and_nothing_can_be_written(tmp_path: Path) -> None:
    """Seen before the ids are gone: not even root could."""
    said = tmp_path / "said"

    def look() -> int:
        found = [str(os.getpid() == 1), ",".join(name for _, name in socket.if_nameindex())]
        for path, how in ((tmp_path / "new", os.O_CREAT | os.O_WRONLY), ("/dev/null", os.O_RDONLY)):
            try:
                os.open(path, how)
                found.append("opened")
            except OSError as error:
                found.append(errno.errorcode[error.errno or 0])
        os.write(1, "\n".join(found).encode())
        return 0

    with said.open("wb") as file:
        child = os.fork()
        if child == 0:
            os.dup2(file.fileno(), 1)
            sandbox.leave_namespaces()
            inner = os.fork()
            if inner == 0:
                os._exit(look())
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
        assert os.waitpid(child, 0)[1] == 0
    assert said.read_text().split("\n") == ["True", "lo", "EROFS", "EACCES"]
    assert not (tmp_path / "new").exists()


# -- run ------------------------------------------------------------------------------------------

RUN = """
import os, sys, time
from probes.process import sandbox
def work():
    {work}
    return 7
print(sandbox.run(work, sandbox.Limits(), sandbox.LOADING | {more}, {seconds}))
"""


def run(work: str, seconds: float = 20, more: str = "set()", nobody: bool = False) -> str:
    """What ``sandbox.run`` returns in a fresh interpreter, as nobody where that is asked."""
    within = ("setpriv", "--reuid=65534", "--clear-groups") if nobody and os.geteuid() == 0 else ()
    code = RUN.format(work=work, seconds=seconds, more=more)
    done = subprocess.run(
        [*within, sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    return (done.stdout.splitlines() or [done.stderr])[-1]


@needs_filter
@pytest.mark.parametrize("nobody", [False, True])
def test_the_status_of_the_work_is_reported(nobody: bool) -> None:
    assert run("pass", nobody=nobody) == "7"
    assert run("os._exit(3)", nobody=nobody) == "3"
    assert run("raise ValueError", nobody=nobody) == str(sandbox.FAILED)
    began = time.monotonic()
    assert run("time.sleep(50)", 0.3, nobody=nobody) == str(sandbox.TIMED_OUT)
    assert time.monotonic() - began < 20


LEAVES = """os.fork() or os.setsid() and os.fork() or (os.write(1, b""), time.sleep({seconds}))
    time.sleep(0.2)"""


@needs_filter
@pytest.mark.parametrize("nobody", [False, True])
def test_grandchildren_in_a_session_of_their_own_end_with_it(nobody: bool) -> None:
    seconds = f"{50 + os.getpid() / 1e7:.7f}"  # the output would be held open for so long
    began = time.monotonic()
    more = "{'clone', 'fork', 'setsid'}"
    assert run(LEAVES.format(seconds=seconds), more=more, nobody=nobody) == "7"
    assert time.monotonic() - began < 30, "whoever is left holds the output open"
