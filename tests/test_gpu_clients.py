"""Who else uses the GPUs is reported once, and again when a number was given to another process."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from probes.proc import gpu_clients, procfs
from probes.proc.gpu_clients import GpuClients
from probes.source import GPUS, Sample
from tests.rootless_support import CALLER, NOBODY, frame, started

S = 1_000_000_000

SLEEPER = "import time; time.sleep(60)"


def gpus(*pids: int) -> Sample:
    """NVML's sample of two GPUs with these processes on the first."""
    clients = [{"pid": pid, "type": "C", "memory_bytes": 1, "gpu_instance": None} for pid in pids]
    return Sample(GPUS, 0, {"gpus": [{"index": 0, "clients": clients}, {"index": 1, "clients": None}]})


def told(
    clients: GpuClients, sample: Sample, now_ns: int, watched: tuple[int, ...] = ()
) -> list[dict[str, Any]]:
    return [one.data for one in clients.samples(sample, watched, now_ns)]


def test_a_stranger_is_reported_once_with_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_clients, "in_initial_namespace", lambda: True)
    clients = GpuClients()
    own = os.getpid()
    (first,) = told(clients, gpus(own), S)
    assert first["pid"] == own
    assert "python" in first["command"]
    assert first["user"] == procfs.user_name(os.getuid())
    assert told(clients, gpus(own), 2 * S) == told(clients, gpus(own), 20 * S) == []


def test_who_is_watched_or_has_gone_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_clients, "in_initial_namespace", lambda: True)
    clients = GpuClients()
    assert told(clients, gpus(os.getpid(), 1 << 30), S, watched=(os.getpid(),)) == []


def test_a_number_that_was_given_to_another_process_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = iter([1, 1, 2])
    facts = procfs.process_facts(os.getpid())
    assert facts is not None
    monkeypatch.setattr(gpu_clients, "in_initial_namespace", lambda: True)
    monkeypatch.setattr(procfs, "process_facts", lambda pid: {**facts, "pid": pid, "start_ns": next(starts)})
    clients = GpuClients()
    assert [len(told(clients, gpus(77), now)) for now in (S, 7 * S, 14 * S)] == [1, 0, 1]


def test_within_a_container_only_who_maps_cuda_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """NVML may mean another process by that number."""
    monkeypatch.setattr(gpu_clients, "in_initial_namespace", lambda: False)
    assert told(GpuClients(), gpus(os.getpid()), S) == []
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(bytes(mmap.PAGESIZE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert len(told(GpuClients(), gpus(os.getpid()), S)) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody, which only root can")
def test_who_is_not_watched_is_on_the_gpu_all_the_same(home: Path) -> None:
    with started(home, CALLER, "0") as stranger, started(home, SLEEPER) as watched:
        found = frame(home, "--pid", str(watched), "--duration", "1")
    assert stranger not in {row["pid"] for row in found["processes"]}
    (one,) = found["gpus"][0]["processes"]
    assert (one["pid"], one["user"], one["kind"], one["watched"]) == (stranger, str(NOBODY), "C", False)
    assert one["memory_bytes"] == 257 << 20
    assert "import" in one["command"]
    assert found["gpus"][0]["sm_active_percent"] == 0
