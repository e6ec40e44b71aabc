"""Memory, descriptors or disk run out: one sentence says which, and what was recorded can be read."""

from __future__ import annotations

import errno
import resource
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gputop.process.failures import refused
from probes.ebpf import quota
from tests.cli_support import RECORDING, complete, run, run_after
from tests.gputop_command import GPUTOP
from tests.waiting import HANGS_S


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that takes a frame or two."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("Unable to allocate 16.0 MiB"), "not enough memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
        (RuntimeError("can't start new thread"), "not enough memory"),
        (ImportError("libx.so: failed to map segment from shared object"), "not enough memory"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.ENFILE, "Too many open files in system"), "fs.file-max"),
        (OSError(errno.EACCES, "Permission denied"), ""),
        (RuntimeError("dictionary changed size during iteration"), ""),
        (ImportError("no module named x"), ""),
    ],
)
def test_what_has_run_out_is_reported_and_nothing_else_is_mistaken_for_it(
    error: Exception, said: str
) -> None:
    assert said in refused(error)
    assert bool(said) == bool(refused(error))


def limited(kind: int, value: int) -> None:
    resource.setrlimit(kind, (value, value))


@pytest.mark.long
def test_with_little_memory_a_recording_is_explained_or_one_sentence_says_why_not() -> None:
    told = []
    for megabytes in (900, 200, 170, 130):
        before = partial(limited, resource.RLIMIT_AS, megabytes << 20)
        done = run_after("explain", str(RECORDING), before=before)
        assert "should not have happened" not in done.stderr
        assert "Traceback" not in done.stderr
        if done.returncode:
            # numpy's library of linear algebra ends the process by itself, with sentences of its own
            assert "not enough memory" in done.stderr or "OpenBLAS" in done.stderr
            told.append(megabytes)
        else:
            assert done.stdout
    assert 900 not in told
    assert 130 in told, "the limit was not low enough to see anything"


@pytest.mark.ebpf
def test_with_few_descriptors_one_sentence_says_so(tmp_path: Path) -> None:
    before = partial(limited, resource.RLIMIT_NOFILE, 24)
    file = tmp_path / "x"
    done = run_after("record", "--lines", "off", "-o", str(file), "--", "true", before=before)
    assert "Too many open files: allow more with ulimit -n; until then" in done.stderr
    assert done.returncode == 0, "the command's own"
    assert complete(file)


def test_libraries_of_root_are_bounded_as_well() -> None:
    told: list[str] = []
    counted = quota.Quota("libraries", 1, 3, told.append)
    taken = 0
    for inode in range(5):
        if counted.admits(0):
            counted.acquire(0, (1, inode))
            taken += 1
    assert taken == 3
    (one,) = told
    assert one.startswith("3 libraries")


@pytest.mark.long
@pytest.mark.ebpf
def test_a_full_disk_costs_the_recording_of_one_frame_and_neither_frame_nor_command(
    small_disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file, ended = small_disk / "x", tmp_path_factory.mktemp("command") / "ended"
    # frames before there is much to tell
    script = f"sleep 1; i=0; while [ $i -lt 1500 ]; do /bin/true; i=$((i+1)); done; touch {ended}"
    command = ["sh", "-c", script]
    words = ["--once", "--duration", "30", "--lines", "off", "--record", str(file), "--", *command]
    process = subprocess.Popen([*GPUTOP, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=HANGS_S)  # it ends when the command has
    finally:
        process.kill()
    assert process.returncode == 1
    assert output, "the frame was printed"
    assert "the disk is full" in errors
    assert "should not have happened" not in errors
    assert ended.exists(), "the command went on"
    kept = run("stats", str(file))
    assert kept.returncode == 0, kept.stderr
