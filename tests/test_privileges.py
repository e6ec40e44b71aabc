"""What a process gives up it never gets back, and what it keeps it may still use."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from probes.files.shared_pages import SharedPages
from probes.files.untrusted_files import File, FileIdentity, opened
from probes.process import privileges, realtime, sandbox
from probes.process.privileges import OBSERVING, SIGNALS, Capability
from probes.process.syscall_numbers import POWERS, parsed
from probes.stacks.demangle import demangled
from tests.confined_child import in_child, needs_root, status

KEPT = OBSERVING | SIGNALS
BY_LIMITS = frozenset({Capability.SYS_NICE, Capability.IPC_LOCK})  # kept where root may not raise its limits
GET_DUMPABLE = 3
ATTACH = 16  # linux/ptrace.h

pytestmark = needs_root


def confine() -> None:
    assert privileges.confine_process(KEPT) == ""


def mask() -> int:
    own = int(in_child(lambda: None, lambda: status("CapEff")), 16)
    kept = KEPT if own >> Capability.SYS_RESOURCE & 1 else KEPT | BY_LIMITS
    return own & sum(1 << one for one in kept)


def test_all_sets_are_limited_to_what_is_kept() -> None:
    sets = in_child(confine, lambda: status("CapPrm", "CapEff", "CapBnd")).split()
    assert [int(one, 16) for one in sets] == [mask()] * 3
    assert in_child(confine, lambda: status("CapInh", "CapAmb")) == "0" * 16 + " " + "0" * 16
    assert in_child(confine, lambda: status("NoNewPrivs")) == "1"


def test_a_program_that_root_starts_afterwards_gets_no_more() -> None:
    def started() -> str:
        text = os.popen("grep CapEff /proc/self/status").read()
        return str(int(text.split()[1], 16) & ~mask())

    assert in_child(confine, started) == "0"


def test_root_s_memory_is_hidden() -> None:
    assert in_child(confine, lambda: ctypes.CDLL(None).prctl(GET_DUMPABLE, 0, 0, 0, 0)) == "0"


def test_what_was_not_kept_is_refused() -> None:
    def mount() -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mount(b"none", b"/mnt", b"tmpfs", ctypes.c_ulong(0), None)
        return ctypes.get_errno()

    assert in_child(confine, mount) == "1"  # EPERM


@pytest.mark.parametrize("name", sorted(parsed(POWERS, os.uname().machine)))
def test_what_no_observer_does_is_refused_whatever_the_rights(name: str) -> None:
    number = parsed(POWERS, os.uname().machine)[name]

    def asked() -> str:
        """With arguments that no such call takes, so that it fails in any case."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
        return errno.errorcode.get(ctypes.get_errno(), "")

    assert in_child(lambda: sandbox.forbid([name]), asked) == "EPERM"


def test_the_filter_holds_in_gputop_s_threads_and_what_they_start_and_refuses_nothing_else() -> None:
    def confined() -> None:
        assert privileges.confine_process(KEPT | privileges.DRIVER) == ""

    def found() -> str:
        asked: list[str] = []

        def attach() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            libc.ptrace(ATTACH, -1, 0, 0)
            asked.append(errno.errorcode[ctypes.get_errno()])

        thread = threading.Thread(target=attach)
        thread.start()
        thread.join()
        started = subprocess.run(["grep", "^Seccomp:", "/proc/self/status"], capture_output=True, check=True)
        return f"{asked} {started.stdout.decode().split()[1]}"

    assert in_child(lambda: None, found).startswith("['ESRCH'] ")  # nobody has this number
    assert in_child(confined, found) == "['EPERM'] 2"


def test_threads_still_go_before_others() -> None:
    def hurried() -> int:
        realtime.hurry()
        return os.getpriority(os.PRIO_PROCESS, 0)

    if in_child(lambda: None, hurried) != str(realtime.NICE):
        pytest.skip("root may not go before others here")
    assert in_child(confine, hurried) == str(realtime.NICE)


def test_one_file_under_two_devices_is_known_by_pages_that_were_opened_before(tmp_path: Path) -> None:
    path = tmp_path / "library"
    path.write_bytes(b"x" * 8192)
    pages: list[SharedPages] = []

    def opens() -> None:
        pages.append(SharedPages())

    def opens_and_confines() -> None:
        opens()
        confine()

    def twice() -> str:
        with opened(path) as file:
            device, inode = file.identity
            other = FileIdentity((device + 1, inode), file.size, file.owner)
            first = pages[0].original(file)
            second = pages[0].original(File(os.dup(file.descriptor), other))
            return f"{first} {second == file.identity}"

    if in_child(opens, twice) != "None True":
        pytest.skip("this kernel does not show page frames here")
    assert in_child(opens_and_confines, twice) == "None True"


def test_only_tries_without_giving_up() -> None:
    def tried() -> str:
        before = privileges.held()
        with privileges.only({Capability.KILL}):
            during = privileges.held()
        return f"{sorted(during)} {privileges.held() == before}"

    assert in_child(lambda: None, tried) == f"{[Capability.KILL]} True"


def test_a_helper_still_becomes_nobody_before_it_takes_names_apart() -> None:
    mangled = "_ZN5outer5innerEv"
    if in_child(lambda: None, lambda: demangled(mangled)) == mangled:
        pytest.skip("this machine has no C++ library that takes names apart")
    assert in_child(confine, lambda: demangled(mangled)) == "outer::inner()"


UNLISTED = (
    "kcmp",
    "mknodat",
    "symlinkat",
    "personality",
    "process_vm_readv",
    "pidfd_getfd",
    "shmget",
    "fanotify_init",
)
NUMBERS = {
    "x86_64": (312, 259, 266, 135, 310, 438, 29, 300),
    "aarch64": (272, 33, 36, 92, 270, 438, 194, 262),
}


@pytest.mark.skipif(os.uname().machine not in NUMBERS, reason="no filter on this machine")
def test_a_daemon_makes_the_system_calls_that_are_listed_and_no_other() -> None:
    def confined() -> None:
        assert privileges.confine_process(KEPT | privileges.DRIVER, daemon=True) == ""

    def found() -> str:
        """Of each, with arguments that it does not take, what it says."""
        libc = ctypes.CDLL(None, use_errno=True)
        said = []
        powers = parsed(POWERS, os.uname().machine)
        for number in (*NUMBERS[os.uname().machine], 5000, powers["mount"], powers["unshare"]):
            libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
            said.append(errno.errorcode.get(ctypes.get_errno(), ""))
        return " ".join(said)

    unknown = ["ENOSYS"] * (len(UNLISTED) + 1)  # a C library goes another way, as on an older kernel
    assert in_child(confined, found) == " ".join([*unknown, "EPERM", "EPERM"])
    assert "ENOSYS" not in in_child(confine, found).split()[: len(UNLISTED)]


def test_a_daemon_may_still_do_its_work() -> None:
    def work() -> str:
        answer = subprocess.run([sys.executable, "-c", "import json, ssl, sqlite3"], check=False).returncode
        with socket.socketpair()[0], tempfile.TemporaryFile() as file:
            file.write(b"x")
        thread = threading.Thread(target=time.sleep, args=(0.01,))
        thread.start()
        thread.join()
        return f"{answer} {demangled('_Z1fv')} {len(os.listdir('/proc')) > 10}"

    def confined() -> None:
        assert privileges.confine_process(KEPT | privileges.DRIVER, daemon=True) == ""

    assert in_child(confined, work) == "0 f() True"
