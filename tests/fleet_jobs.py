"""Recordings of made-up jobs, a file a rank, by the clock of its host; who is late, and why, is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probes.schema import Communicator as What
from probes.schema import Kind, OffFlag, Records
from probes.source import Item
from tests import items
from tests.items import MS, START
from tests.random_recording import ticked
from tests.split_recording import write

HANDLE, STREAM = 0xC0, 0
CPU, QUEUE, GPU = "at work", "starved", "slow GPU"  # what makes a rank late
AFTER, BEFORE, NEVER = "after the collective", "after the next kernel", "never"
ASKS = "asks at once, waits where it has not ended"  # as PyTorch's DistributedDataParallel
CAUSE = {CPU: "C28", QUEUE: "C13", GPU: None}  # as docs/causes/ has it


@dataclass(frozen=True)
class Job:
    """What is true of one.

    Attributes:
        id: Its communicator's, as a recording tells it.
        late: A rank, -1: none.
        ms: So late.
        how: CPU, QUEUE or GPU.
        made: Whether the making of the communicator was seen.
        waits: AFTER; BEFORE, as with ``loss.item()`` ahead of ``backward()``; ASKS; or NEVER.
        one_host: All ranks have one clock.
    """

    id: int
    late: int = -1
    ms: float = 0
    how: str = CPU
    ranks: int = 3
    steps: int = 40
    drift: float = 50e-6
    made: bool = True
    waits: str = AFTER
    one_host: bool = False

    @property
    def cause(self) -> str | None:
        """What is found: where nobody waits for the collective, no call proves an idle GPU after it."""
        if self.waits == ASKS:
            return "C28"  # a host that works without having waited gives its GPU no work meanwhile
        return CAUSE[self.how] if self.waits == AFTER else None


def record(folder: Path, job: Job, seed: int = 1, **header: Any) -> list[Path]:
    """Writes a file for each rank."""
    chance = np.random.default_rng(seed)
    records: list[list[Records]] = [[] for _ in range(job.ranks)]
    ahead = chance.integers(-900, 900, job.ranks) * 10**9
    speed = 1 + chance.uniform(-job.drift, job.drift, job.ranks)
    if job.one_host:
        ahead[:], speed[:] = 0, 1

    def told(rank: int, true: float) -> int:
        return START + int(ahead[rank]) + round(true * speed[rank])

    def call(rank: int, begin: float, end: float, op: str, **more: int) -> None:
        first, last = told(rank, begin), told(rank, end)
        records[rank].append(items.call(last, last - first, op, stream=STREAM, **more))

    for rank in range(job.ranks):
        records[rank].append(items.event(Kind.EXEC, told(rank, 1000)))
        joined = {"op": What.JOINED, "stream": job.id, "aux": HANDLE, "bytes": job.ranks << 32 | rank}
        if job.made:
            records[rank].append(items.event(Kind.COMMUNICATOR, told(rank, 2 * MS), duration=MS, **joined))
    free, over = np.full(job.ranks, 10.0 * MS), 0.0
    for _ in range(job.steps):
        arrived = np.zeros(job.ranks)
        for rank in range(job.ranks):
            at = free[rank] + abs(chance.normal(0, 0.1)) * MS
            extra = job.ms * MS if rank == job.late else 0.0
            if extra and job.how == QUEUE:
                low, high = told(rank, at), told(rank, at + extra)
                forced = {"flags": int(OffFlag.QUEUED | OffFlag.INVOLUNTARY)}
                records[rank].append(items.off(high, 0, high - low, op=65535, **forced))
            at += extra if job.how != GPU else 0.0
            call(rank, at, at + 20_000, "cudaLaunchKernel", aux=7)
            done = max(at, over) + 2 * MS + (extra if job.how == GPU else 0.0)
            if job.waits != NEVER:
                call(rank, at + 30_000, done, "cudaStreamSynchronize")
            arrived[rank] = done + 30_000
        over = arrived.max() + 0.4 * MS
        for rank in range(job.ranks):
            begun = arrived[rank] + 20_000
            woken = over + chance.exponential(0.03) * MS if job.waits != BEFORE else begun
            call(rank, arrived[rank], begun, "ncclAllReduce", aux=HANDLE, bytes=4096)
            if job.waits == ASKS and rank == job.late:
                woken = over + 3_000
                call(rank, over, woken, "cudaStreamQuery")
            elif job.waits in (AFTER, ASKS):
                call(rank, begun + 10_000, woken, "cudaStreamSynchronize")
            free[rank] = woken + 10_000
    paths = []
    for rank, own in enumerate(records):
        start = START + int(ahead[rank])
        boot = f"boot-{job.id}" if job.one_host else f"boot-{job.id}-{rank}"
        machine = {"boot": boot, "host": f"node{rank}"}
        facts = items.process(10, start, job_id=f"job-{job.id}", rank=rank)
        head = {**items.HEADER, "start_ns": start, "machine": machine, **header}
        told_items: list[Item] = [items.apis(), facts, *ticked(own, start)]
        paths.append(write(folder / f"{job.id}-{rank}.gputop", head, told_items))
    return paths
