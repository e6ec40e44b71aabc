"""Data for the tests of session files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gputop
from probes.schema import ALIASED, RECORD, Kind, Records, empty
from probes.source import Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter

RECORDINGS = Path(__file__).parent.parent / "recordings"
HEADER: dict[str, Any] = {
    "tool": "gputop 0.1.0",
    "clock": {"monotonic_ns": 5, "realtime_ns": 1_700_000_000_000_000_005, "utc_offset_s": 3600},
    "machine": {"hostname": "node7", "kernel": "6.18"},
}


def realistic(calls: int = 60_000, seed: int = 1, threads: int = 6, cpus: int = 2) -> Records:
    """A training job: launches (each with its driver call), copies and syncs at 20,000 calls a second, a
    tenth context switches; numbered per CPU, in the order in which the calls ended."""
    r = np.random.default_rng(seed)
    start = (10**12 + np.cumsum(r.exponential(50_000, calls))).astype(np.int64)
    tid = 4000 + r.integers(0, threads, calls)
    cpu = (tid + (r.random(calls) < 0.02)) % cpus
    what = r.choice(4, calls, p=[0.8, 0.09, 0.06, 0.05])
    scale = np.array([600, 4000, 40_000, 600])[what]
    duration = (np.array([4000, 9000, 500, 2000])[what] + r.gamma(2, scale)).astype(np.int64)

    def rows(of: Any, **columns: Any) -> Records:
        made = empty(len(of))
        made["tid"], made["pid"], made["cpu"] = tid[of], 3990 + tid[of] % 2 * 5, cpu[of]
        for name, values in columns.items():
            made[name] = values
        return made

    launch, copy, sync = (np.flatnonzero(what == number) for number in range(3))
    stream = 0x55A0_1234_5000 + tid % 4 * 0x120
    outer = rows(np.arange(calls), t_end=start + duration, duration=duration, kind=Kind.CALL)
    outer["op"] = np.array([17, 40, 55, 60])[what]
    outer["stream"][copy], outer["stream"][launch] = stream[copy], stream[launch]
    outer["flags"][copy], outer["flags"][sync] = 1 << 8, 4
    outer["bytes"][copy] = r.choice([4096, 65536, 1 << 20, 150_528], len(copy))
    outer["aux"][copy] = 0x7F00_0000_0000 + r.integers(0, 64, len(copy)) * 4096
    outer["nvcsw"][sync], outer["run_delay"][sync] = 1, r.gamma(1, 3000, len(sync))
    lead, tail = (r.gamma(2, width, len(launch)).astype(np.int64) + 250 for width in (100, 80))
    ended = start[launch] + duration[launch] - tail
    inner = rows(launch, t_end=ended, kind=Kind.CALL, op=117, depth=1, flags=1)
    inner["duration"], inner["stream"] = duration[launch] - lead - tail, stream[launch]

    switches = (len(outer) + len(inner)) // 9
    at = np.sort(r.integers(0, calls, switches))
    away = r.gamma(1, 80_000, switches).astype(np.int64)
    off = rows(at, t_end=start[at] + away, duration=away, kind=Kind.OFFCPU, nvcsw=cpu[at])
    off["op"] = r.choice([202, 35, 7, 0xFFFF], switches)
    off["ret"] = r.choice([0, 1, 2], switches, p=[0.2, 0.7, 0.1])
    off["flags"] = r.choice([0, 1, 4], switches, p=[0.7, 0.1, 0.2])
    aliased = off.view(ALIASED)
    aliased["runnable"] = np.where(r.random(switches) < 0.6, r.gamma(1, 5000, switches), 0)
    aliased["waker_pid"], aliased["waker_tid"] = 3990, r.integers(4000, 4012, switches)
    aliased["next_pid"] = aliased["next_tid"] = r.choice([0, 0, 3990, 812, 990], switches)

    together = np.concatenate([inner, outer, off])
    together = together[np.argsort(together["t_end"], kind="stable")]
    for number in range(cpus):
        here = together["cpu"] == number
        together["seq"][here] = 1000 * number + np.arange(np.count_nonzero(here))
    return together


def noise(count: int, seed: int = 0) -> Records:
    """Records of random bytes."""
    return np.frombuffer(np.random.default_rng(seed).bytes(count * RECORD.itemsize), RECORD).copy()


def session(records: Records, ticks: int = 4) -> list[Item]:
    """Items as a live source yields them: facts, then ticks of two batches, a sample and a mark."""
    items: list[Item] = [Sample("apis", 1, {"rows": [[17, "cudaLaunchKernel", "runtime"]]})]
    for tick, part in enumerate(np.array_split(records, ticks)):
        now = int(part["t_end"].max() & np.uint64(2**62 - 1)) if len(part) else tick
        items += [part[: len(part) // 2], Sample("gpus", now, {"gpus": [{"index": 0, "util": tick}]})]
        items += [Sample("names", now, {"4001": "worker ü"}), part[len(part) // 2 :]]
        items += [Sample("mark", now, {"lost": [0, 0, tick, 0, 0]})]
    return items


def write(path: Path, items: Sequence[Item], **options: Any) -> Path:
    """Record items to ``path``."""
    writer = SessionWriter(path, HEADER, **options)
    for item in items:
        writer.write(item)
    writer.close()
    return path


def read(path: Path) -> list[Item]:
    """All items of a file."""
    reader = SessionReader(path)
    try:
        return list(reader.items())
    finally:
        reader.close()


def flat(items: Sequence[Item]) -> list[bytes | Sample]:
    """Items with batch boundaries removed: runs of records as bytes, samples as they are."""
    result: list[bytes | Sample] = []
    for item in items:
        if isinstance(item, Sample):
            result.append(item)
        elif result and isinstance(result[-1], bytes):
            result[-1] += item.tobytes()
        elif len(item):
            result.append(item.tobytes())
    return result


def loaded(name: str) -> tuple[dict[str, object], list[Item]]:
    """Header and items of a recording of the repository."""
    reader = SessionReader(RECORDINGS / f"{name}.msgpack")
    try:
        return dict(reader.header), list(reader.items())
    finally:
        reader.close()


def totals(path: Path) -> dict[str, Any]:
    """``gputop stats --json``."""
    found: dict[str, Any] = gputop.to_json(gputop.stats(path))  # type: ignore[assignment]
    return found
