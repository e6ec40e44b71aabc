"""Libraries that come and go leave no probe behind."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from gputop.simgpu import ensure_built
from probes.code import libraries
from probes.ebpf import attacher, loader, quota
from probes.ebpf.degradation import Reach
from probes.files import maps
from probes.source import Sample
from probes.stacks import line_tracker, programs
from probes.stacks.handles import NamingProbes
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf


def descriptors() -> int:
    gc.collect()  # what other tests of this process left open
    return len(os.listdir("/proc/self/fd"))


def ready(pid: int, path: str) -> bool:
    """Whether a process waits in code of this file."""
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "S" and any(mapping.path == path for mapping in maps.executable(pid))


def test_drivers_that_are_removed_take_their_probes_with_them(tmp_path: Path) -> None:
    loaded = loader.load(loader.Options(True, 1 << 20, os.getpid()))
    lines = programs.load(loaded)
    with closing(loaded.module), closing(lines.module), closing(attacher.Attachments(loaded)) as attachments:
        naming, before = NamingProbes(attachments), descriptors()
        for number in range(4):
            copy = tmp_path / f"{number}" / "libcuda.so.1"
            copy.parent.mkdir()
            shutil.copy(ensure_built() / "libcuda.so.1", copy)
            target = libraries.target(copy)
            assert target is not None
            assert attachments.attach([target])
            naming.attach(lines.uprobes)
            probed = descriptors()
            assert probed > before + 4  # calls, and what tells the names of kernels
            attachments.reduce(Reach.NO_LINES)
            attachments.reduce(Reach.ALL)
            assert descriptors() == probed
            attachments.release([target.identity])
            assert attachments.attach([target])  # as a later file that has its number
            naming.attach(lines.uprobes)
            assert descriptors() == probed
            copy.unlink()
            attachments.release([target.identity])
            assert descriptors() == before


def test_interpreters_and_loaders_that_no_process_maps_take_their_probes_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of containers and environments that come and go each has its own, at one path for all."""
    few, most = 2, 5
    monkeypatch.setattr(quota, "FEW", few)
    monkeypatch.setattr(line_tracker, "MAX_INTERPRETERS", most)
    monkeypatch.setattr(line_tracker, "ROW_RESTS_S", 0.0)
    told: list[Sample] = []
    loaded = loader.load(loader.Options(True, 1 << 20, os.getpid()))
    with closing(loaded.module), closing(attacher.Attachments(loaded)) as attachments:
        lines = line_tracker.Lines(attachments, loaded, lambda _pid: True, told.append, ())
        with closing(lines):
            lines.load()
            lines.turn(lambda: [])
            before = descriptors()
            for number in range(3 * most):
                folder = tmp_path / str(number)
                folder.mkdir()
                python = str(shutil.copy(os.path.realpath("/usr/bin/python3"), folder))
                first = shutil.copy(os.path.realpath("/lib64/ld-linux-x86-64.so.2"), folder)
                command = [first, python, "-S", "-c", "input()"]
                with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
                    wait_until(partial(ready, process.pid, python), "the interpreter runs")
                    lines.look_at(process.pid)
                    assert len(lines.probed()) >= 2, told
                    lines.sweep({mapping.file for mapping in maps.executable(process.pid)})
                    assert descriptors() >= before + 3, "what a process maps stays probed"
                    process.communicate(b"\n")
                shutil.rmtree(folder)
                lines.sweep(())
                assert descriptors() <= before + few * 3
    assert [sample.data["text"] for sample in told] == []
