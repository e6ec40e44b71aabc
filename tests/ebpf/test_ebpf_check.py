"""`gputop check` for real: the probes are loaded, libraries are called, and what is taken away is missed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gputop.simgpu import ensure_built
from tests.ebpf.recording import TIMEOUT_S
from tests.gputop_command import GPUTOP_APART
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf

ATTEMPTS = 5
DETACHING_S = 150  # a third of a second a probe; helpers of earlier tests go first
# a process that calls one traced function of its libraries and says how often, or none, until it is ended
CALLER = """
import ctypes, os, sys, time
runtime = ctypes.CDLL(sys.argv[1] + "/libcudart.so.12")
log = os.open(sys.argv[1] + "/calls", os.O_WRONLY | os.O_CREAT)
runtime.cudaFree(None)
print("ready", flush=True)
calls = 0
while True:
    if sys.argv[2] == "calls":
        calls += 1
        os.pwrite(log, b"%09d" % calls, 0)
        runtime.cudaStreamQuery(None)
    time.sleep(0.005)
"""
# what a container's seccomp profile does to bpf(2): EPERM
WITHOUT_BPF = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 321), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(rules), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def check(
    *arguments: str, within: tuple[str, ...] = (), env: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of ``gputop check``, run within another command."""
    done = subprocess.run(
        [*within, *GPUTOP_APART, "check", "--json", *arguments],
        env=os.environ | dict(env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.stderr == "", "what compilers and drivers say is held back"
    return done.returncode, json.loads(done.stdout)


def missing(found: Mapping[str, Any]) -> str:
    """All facts that stop live tracing, with their fixes."""
    return "\n".join(f"{fact['text']} -> {fact['fix']}" for fact in found["facts"] if fact["blocks"])


@contextmanager
def caller(folder: Path, what: str) -> Iterator[int]:
    """A process with its own copy of the simulated libraries; its number."""
    shutil.copytree(ensure_built(), folder)
    env = os.environ | {
        "LD_LIBRARY_PATH": str(folder),
        "SIMGPU_STATE": str(folder / "state"),
        "SIMGPU_INIT_MS": "0",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(folder), what], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("way", ["multi", "perf"])
@pytest.mark.mainly("multi")
def test_every_library_counts_the_check_s_own_calls(way: str) -> None:
    status, found = check("--simgpu", env={"GPUTOP_ATTACH": way})
    assert (status, found["live"]) == (0, True), missing(found)
    assert found["kernel"]["path"] == {"multi": "uprobe_multi", "perf": "perf"}[way]
    # files by the same names that others look at in their own mount namespace are no files of ours
    libraries = [
        library
        for library in found["libraries"]
        if str(ensure_built()) in library["path"] and os.stat(library["path"]).st_ino == library["inode"]
    ]
    assert len(libraries) == 4
    for library in libraries:
        hit = library["self_hit"]
        assert (hit["calls"], hit["counted"], hit["error"]) == (5, 5, ""), library["path"]
        assert library["version"]
        assert len(library["build_id"]) == 40


@pytest.mark.long
def test_the_check_makes_no_context_and_leaves_no_process_on_the_gpu(tmp_path: Path) -> None:
    log = tmp_path / "simgpu.jsonl"
    check("--simgpu", env={"SIMGPU_LOG": str(log), "SIMGPU_STATE": str(tmp_path / "state")})
    calls = [json.loads(line)["calls"] for line in log.read_text().splitlines()] if log.exists() else []
    assert not any(counts.get("cuCtxCreate_v2", 0) + counts.get("cuInit", 0) for counts in calls)


@pytest.mark.parametrize("way", ["multi", "perf"])
@pytest.mark.mainly("multi")
def test_hits_of_a_running_process_are_counted_by_library_file(tmp_path: Path, way: str) -> None:
    with caller(tmp_path / "a", "calls") as busy, caller(tmp_path / "b", "rests") as idle:
        for _ in range(ATTEMPTS):  # one that is kept from its CPU makes no call for a while
            status, found = check("--pid", f"{busy},{idle}", env={"GPUTOP_ATTACH": way})
            assert status == 0, missing(found)
            hits = {
                (library["pids"][0], library["layer"]): {
                    symbol["name"]: symbol["hits"] for symbol in library["symbols"]
                }
                for library in found["libraries"]
            }
            if hits[busy, "driver"]["cuStreamQuery"] > 20:
                break
    assert set(hits) == {(pid, layer) for pid in (busy, idle) for layer in ("runtime", "driver")}
    assert 20 < hits[busy, "runtime"].pop("cudaStreamQuery") <= int((tmp_path / "a" / "calls").read_text())
    assert set(hits[busy, "runtime"].values()) == {0}
    assert hits[busy, "driver"]["cuStreamQuery"] > 20
    assert set(hits[idle, "runtime"].values()) == {0}


@pytest.mark.long
def test_without_tracefs_live_tracing_works() -> None:
    # either may not be mounted to begin with
    script = (
        "for at in /sys/kernel/tracing /sys/kernel/debug; do ! mountpoint -q $at || umount -R $at; done; "
        'exec "$@"'
    )
    status, found = check("--simgpu", within=("unshare", "-m", "sh", "-c", script + " 2>/dev/null", "sh"))
    assert found["kernel"]["tracefs"] == ""
    assert (status, found["live"]) == (0, True), missing(found)


def test_with_a_masked_sys_the_mount_that_is_missing_is_named() -> None:
    script = 'mount -t tmpfs none /sys && exec "$@"'
    status, found = check(within=("unshare", "-m", "sh", "-c", script, "sh"))
    assert status == 1
    assert "/sys is masked" in missing(found)
    assert "-v /sys/kernel:/sys/kernel:ro" in missing(found)


@pytest.mark.parametrize(
    "mount", ["mount --bind {folder} /sys/kernel/btf", "mount --bind /dev/null /sys/kernel/btf/vmlinux"]
)
@pytest.mark.mainly("mount --bind {folder} /sys/kernel/btf")
def test_without_btf_the_kernel_option_is_named(tmp_path: Path, mount: str) -> None:
    script = mount.format(folder=tmp_path) + ' && exec "$@"'
    status, found = check(within=("unshare", "-m", "sh", "-c", script, "sh"))
    assert status == 1
    assert "CONFIG_DEBUG_INFO_BTF" in missing(found)


def test_a_seccomp_filter_that_refuses_bpf_is_met_by_trying() -> None:
    status, found = check("--simgpu", within=(sys.executable, "-c", WITHOUT_BPF))
    assert status == 1
    assert found["rights"]["seccomp"] == 2
    assert found["tracing"]["tried"]
    assert found["tracing"]["error"]
    assert any("seccomp=unconfined" in fact["fix"] for fact in found["facts"])


@pytest.mark.long
def test_two_capabilities_without_root_are_enough() -> None:
    capabilities = "-all,+bpf,+perfmon"
    within = ("setpriv", "--reuid=65534", "--clear-groups", f"--inh-caps={capabilities}")
    status, found = check(within=(*within, f"--ambient-caps={capabilities}"))
    assert not found["rights"]["root"]
    assert (status, found["live"]) == (0, True), missing(found)


def test_root_of_a_user_namespace_is_told_to_go_to_the_host() -> None:
    status, found = check(within=("unshare", "--user", "--map-root-user"))
    assert status == 1
    assert "user namespace" in missing(found)
    assert "on the host" in missing(found)


def test_without_bcc_the_distribution_s_command_is_named(tmp_path: Path) -> None:
    script = f'mount --bind {tmp_path} /usr/lib/python3/dist-packages/bcc && exec "$@"'
    status, found = check(within=("unshare", "-m", "sh", "-c", script, "sh"))
    assert status == 1
    assert "bcc" in missing(found)
    assert "install" in missing(found)


def test_no_process_of_a_check_stays_behind() -> None:
    marker = {"GPUTOP_TEST_MARKER": str(os.getpid()), "GPUTOP_ATTACH": "perf"}
    check("--simgpu", env=marker)
    wanted = f"GPUTOP_TEST_MARKER={os.getpid()}".encode()

    def alive() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
        return found

    wait_until(lambda: not alive(), "the helper that closes probes to end", DETACHING_S)
