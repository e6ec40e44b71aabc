"""The recordings of two ranks of a job on two machines, whose clocks are as wrong as they are told to be."""

from __future__ import annotations

import random
from typing import Any

from probes.schema import Kind
from probes.source import Item
from tests import items
from tests.items import MS, SECOND, START
from tests.random_recording import ticked

JOB_STEPS = 40
HANDLE = 5


def job(
    clock: int,
    late: random.Random,
    *,
    pid: int,
    boot: str,
    pause: int = 0,
    fast: float = 0.0,
    steps: int = JOB_STEPS,
) -> tuple[dict[str, Any], list[Item]]:
    """A rank of a job of two: both take part in a collective each step, and then wait for it.

    Args:
        clock: How far its clock is ahead.
        late: Says how late it is reported of an end.
        pid: Its number.
        boot: The name of its machine; "a" or another one.
        pause: Between two steps, ns.
        fast: How much faster than the other's its clock runs.
        steps: How many collectives.
    """
    lockstep = random.Random(7)

    def at(ns: int) -> int:
        return START + clock + ns + round(fast * ns)

    records = [items.event(Kind.EXEC, at(1000), pid=pid, tid=pid)]
    arrived = 10 * MS
    for _ in range(steps):
        mine, theirs = (lockstep.randrange(2, 20) * MS, lockstep.randrange(2, 20) * MS)
        own = mine if boot == "a" else theirs
        ended = arrived + max(mine, theirs) + 300_000
        begin = at(arrived + own)
        records.append(
            items.call(
                begin + 20_000, 20_000, "ncclAllReduce", pid=pid, tid=pid, bytes=4096, stream=0, aux=HANDLE
            )
        )
        woken = at(ended + late.randrange(20_000, 400_000))
        records.append(items.call(woken, woken - begin - 30_000, "cudaStreamSynchronize", pid=pid, tid=pid))
        arrived = ended + 500_000 + pause
    header = {
        **items.HEADER,
        "start_ns": START + clock,
        "machine": {"boot": boot, "host": boot},
        # wall clocks that are 40 ms apart
        "clock": {
            "monotonic_ns": START + clock,
            "realtime_ns": 1_700_000_000 * SECOND + (40 * MS if boot == "b" else 0),
        },
    }
    return header, [items.apis(), items.process(pid), *ticked(records, START + clock)]
