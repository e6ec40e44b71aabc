"""Days of the daemon in accelerated time: processes come and go, and what it holds of them does not grow."""

from __future__ import annotations

import gc
import os
import tracemalloc
from pathlib import Path

import pytest

from gputop.analysis import live
from gputop.serve.clients.listening import listen
from gputop.serve.service import Service, Settings
from probes.schema import Kind
from probes.source import MARK, OPEN, PROCESS, Sample
from tests import items as made
from tests.items import HEADER, MS, SECOND, START

BETWEEN_NS = 20 * SECOND  # two processes
PIDS = 700  # before numbers are given anew, at most


def _generation(service: Service, number: int, pids: int = PIDS) -> None:
    """A process that starts, fails in a call, and ends by a signal; so many numbers are there."""
    pid, now = 1000 + number % pids, START + number * BETWEEN_NS
    facts = {"pid": pid, "uid": 0, "name": f"job{number}", "command": "x" * 200, "start_ns": now}
    service.consume(
        Sample(
            PROCESS, now, facts | {"watched": True, "seen_ns": now, "exited_ns": None, "job_id": str(number)}
        )
    )
    service.consume(made.call(now + MS, MS, "cudaMalloc", pid=pid, tid=pid, ret=2))
    service.consume(made.call(now + 2 * MS, MS, "cudaLaunchKernel", pid=pid, tid=pid))
    columns = {name: [0] for name in ("off_since", "queued_since", "op", "call_since")}
    service.consume(Sample(OPEN, now + SECOND, columns | {"pid": [pid], "tid": [pid]}))
    service.consume(Sample(MARK, now + SECOND, {"number": 2 * number, "lost": {}}))
    end = now + 2 * SECOND
    service.consume(
        Sample(PROCESS, end, {"pid": pid, "watched": True, "exited_ns": end, "exit_code": 11, "called": True})
    )
    service.consume(made.event(Kind.EXIT, end, pid=pid, tid=pid, flags=1))
    service.consume(Sample(OPEN, end + SECOND, {**{name: [] for name in columns}, "pid": [], "tid": []}))
    service.consume(Sample(MARK, end + SECOND, {"number": 2 * number + 1, "lost": {}}))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("pids", [200, PIDS])
def test_processes_that_come_and_go_leave_memory_and_descriptors_as_they_were(
    pids: int, tmp_path: Path
) -> None:
    settings = Settings("test", history_bytes=4 << 20, keep_dir=str(tmp_path / "kept"))
    service = Service(HEADER, listen(str(tmp_path / "s")).socket, settings, lambda why: None)
    tracemalloc.start()
    try:
        held = []
        for number in range(3 * pids):
            _generation(service, number, pids)
            if number in (2 * pids, 3 * pids - 1):  # numbers have been given anew, and bounds are reached
                gc.collect()
                held.append((tracemalloc.get_traced_memory()[0], len(os.listdir("/proc/self/fd"))))
        (before, opened), (after, opened_later) = held
        assert after < before * 1.15 + (1 << 20)
        assert opened_later <= opened + 4
        assert len(service.daemon.totals.processes) < 20
        assert service.daemon.totals.rows < 100
        assert service.keeper is not None
        assert service.keeper.left_out > pids  # each of them ended badly, and a few are kept
    finally:
        tracemalloc.stop()
        service.close("over")


def test_an_explanation_that_stopped_begins_anew_with_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(HEADER, listen(str(tmp_path / "s")).socket, Settings("test"), lambda why: None)
    service.start()
    try:
        _generation(service, 1)
        first = service.daemon.explainer
        monkeypatch.setattr(live, "MOST_WAITING", 3)
        for _ in range(200):  # more than it can take in while it waits for a mark
            service.consume(made.call(START, 5))
        monkeypatch.undo()
        assert first.failure
        _generation(service, 2)
        assert service.daemon.explainer is not first
        assert service.explained_anew == 1
        assert not service.daemon.explainer.failure
    finally:
        service.close("over")
