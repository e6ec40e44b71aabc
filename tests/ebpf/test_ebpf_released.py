"""Libraries that come and go leave no probe behind."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from gputop.simgpu import ensure_built
from probes.code import libraries
from probes.ebpf import attacher, loader
from probes.ebpf.degradation import Reach
from probes.stacks import programs
from probes.stacks.handles import NamingProbes

pytestmark = pytest.mark.ebpf


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


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
            copy.unlink()
            attachments.release([target.identity])
            assert descriptors() == before
