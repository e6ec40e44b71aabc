"""`gputop check` runs code of libraries: only of those that root alone can have written, and confined."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.checks import check_libraries, selfhit
from gputop.checks.check_libraries import SelfHit
from gputop.checks.fact import NOTE
from tests.check_facts import CUDART, texts
from tests.cli_support import run
from tests.waiting import wait_until

SYMBOL = "cudaRuntimeGetVersion"
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes other users, and other namespaces")

HEADER = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
"""


def build(folder: Path, body: str) -> Path:
    """A library whose cudaRuntimeGetVersion has this body."""
    source = folder / "fake.c"
    source.write_text(HEADER + f"int {SYMBOL}(int *version) {{ {body} return 0; }}\n")
    path = folder / "libcudart.so.12"
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    path.chmod(0o755)
    return path


# -- whose libraries are called -------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("whose", ["file", "folder", "group", "world"])
def test_what_others_may_have_written_is_called_only_when_requested(tmp_path: Path, whose: str) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    for each in (tmp_path, *tmp_path.parents[:-2]):  # nobody must reach it
        each.chmod(each.stat().st_mode | 0o011)
    path = build(folder, "*version = 42;")
    if whose == "file":
        os.chown(path, NOBODY, -1)
    elif whose == "folder":
        os.chown(folder, NOBODY, -1)
    elif whose == "group":
        folder.chmod(0o775)
    else:
        path.chmod(0o757)
    done = selfhit.call(path, SYMBOL)
    assert (done.calls, done.version, done.withheld) == (0, 0, True)
    assert str(folder) in done.error
    assert selfhit.call(path, SYMBOL, any_owner=True).version == 42


@needs_root
def test_a_container_s_library_is_called_only_when_requested(tmp_path: Path) -> None:
    """It has the very path of one of this machine's, and another content."""
    (tmp_path / "inside").mkdir()
    build(tmp_path, "*version = 1;")
    inside = build(tmp_path / "inside", "*version = 2;")
    container = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", f"mount --bind {inside.parent} {tmp_path}; echo ready; exec sleep 60"],
        stdout=subprocess.PIPE,
    )
    try:
        assert container.stdout is not None
        assert container.stdout.readline() == b"ready\n"
        path = Path(f"/proc/{container.pid}/root{tmp_path}/libcudart.so.12")
        done = selfhit.call(path, SYMBOL)
        assert (done.calls, done.withheld) == (0, True)
        assert "container" in done.error
        assert selfhit.call(path, SYMBOL, any_owner=True).version == 2
    finally:
        container.kill()
        container.communicate()
    assert selfhit.call(tmp_path / "libcudart.so.12", SYMBOL).version == 1


def test_what_was_left_out_is_reported_with_the_flag_that_asks_for_it() -> None:
    hit = SelfHit(SYMBOL, 0, 0, "/home/eve belongs to user 1001, who may have written it", withheld=True)
    section = check_libraries.libraries_section([replace(CUDART, self_hit=hit)])
    assert not section.blocks
    said = texts(section, NOTE)
    assert "/home/eve belongs to user 1001" in said
    assert "gputop check --call-all" in said


@needs_root
@pytest.mark.ebpf
def test_check_leaves_out_a_users_library_and_calls_it_with_the_flag(tmp_path: Path) -> None:
    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(each.stat().st_mode | 0o011)
    path = build(tmp_path, "*version = 12090;")
    os.chown(path, NOBODY, -1)
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    for flags, called in (((), 0), (("--call-all",), 5)):
        found = json.loads(run("check", "--json", *flags, env=env).stdout)
        (hit,) = [each["self_hit"] for each in found["libraries"] if each["path"] == str(path)]
        assert (hit["calls"], hit["counted"]) == (called, called), hit
        asked = [fact for fact in found["facts"] if "--call-all" in fact["fix"]]
        assert bool(asked) is (called == 0)


# -- what a library can do in there -----------------------------------------------------------------

ATTEMPTS = {
    "another program": 'execve("/bin/true", (char *[]){"true", 0}, 0)',
    "a connection": "socket(AF_INET, SOCK_STREAM, 0)",
    "a local connection": "socket(AF_UNIX, SOCK_STREAM, 0)",
    "tracing": "ptrace(PTRACE_ATTACH, getppid(), 0, 0)",
    "a mount": 'mount("none", "/tmp", "tmpfs", 0, 0)',
    "eBPF": "syscall(SYS_bpf, 0, 0, 0)",
    "a signal": "kill(-1, 0)",
    "a process": "fork()",
    "a new session": "setsid()",
    "a new file": 'open("/tmp/made-by-a-library", O_CREAT | O_WRONLY, 0600)',
    "a device": 'open("/dev/zero", O_RDONLY)',
}


@needs_root
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_library_can_not_reach_outside(tmp_path: Path, attempt: str) -> None:
    path = build(tmp_path, f"*version = {ATTEMPTS[attempt]} < 0 ? 42 : 1;")
    assert selfhit.call(path, SYMBOL).version == 42
    assert not Path("/tmp/made-by-a-library").exists()


@pytest.mark.timed
def test_a_library_that_prints_without_end_fills_no_memory(tmp_path: Path) -> None:
    path = build(tmp_path, 'for (;;) write(1, "x\\n", 2);')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = selfhit.call(path, SYMBOL)
    assert (done.calls, done.error) == (0, "it printed more than 64 KiB"), "not that it took too long"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 << 10


def test_a_library_can_not_take_all_memory(tmp_path: Path) -> None:
    path = build(tmp_path, "*version = malloc(3ul << 30) ? 1 : 42;")
    assert selfhit.call(path, SYMBOL).version == 42


def test_a_library_that_never_answers_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selfhit, "TIMEOUT_S", 0.5)
    seconds = 4000 + os.getpid() % 1000
    body = f"if (!fork()) {{ setsid(); if (!fork()) sleep({seconds}); sleep({seconds}); }} sleep({seconds});"
    began = time.monotonic()
    done = selfhit.call(build(tmp_path, body), SYMBOL)
    assert (done.calls, done.error.partition(" within")[0]) == (0, "no answer")
    assert time.monotonic() - began < seconds / 2
    # who is killed has its memory for a moment more; who is not would sleep for an hour
    mapped = os.fsencode(tmp_path)
    wait_until(
        lambda: not any(mapped in _text(one) for one in Path("/proc").glob("[0-9]*/maps")), "the end of all"
    )


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
