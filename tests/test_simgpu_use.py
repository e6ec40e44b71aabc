"""NVML and GPM show what the kernels that ran used, window by window, and no more than that."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gputop.simgpu import read_trace
from tests.simgpu_programs.harness import DRIVER, Bench, figures, patient

_MS = 1_000_000
_WINDOW_MS = 500
_MONITOR = (
    "import pynvml as n\nn.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)\n"
    "def gpm(seconds):\n"
    "    a, b = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()\n"
    "    n.nvmlGpmSampleGet(h, a); time.sleep(seconds); n.nvmlGpmSampleGet(h, b)\n"
    "    q = n.c_nvmlGpmMetricsGet_t(); q.version = n.NVML_GPM_METRICS_GET_VERSION\n"
    "    ids = (1, 2, 3, 5, 10); q.numMetrics = len(ids); q.sample1, q.sample2 = a, b\n"
    "    for i, m in enumerate(ids): q.metrics[i].metricId = m\n"
    "    n.nvmlGpmMetricsGet(q); return [q.metrics[i].value for i in range(len(ids))]\n"
    "def error(f, *a):\n"
    "    try: f(*a)\n"
    "    except n.NVMLError as e: return e.value\n"
)
_HALF = (
    "while time.monotonic() < end:\n    assert launch(f, 100, 132 * 32, 64) == d.cuCtxSynchronize() == 0\n"
)


def in_use(bench: Bench, kind: str, blocks: int, threads: int, queues: int = 1) -> Any:
    """GPM's figures while kernels of a class run one behind the other in so many streams."""
    path = bench.directory / "rules"
    path.write_text(f"work 0 4000000 {kind}\n")
    return bench.run(
        f"{_MONITOR}{DRIVER}f = kernel(b'work')\n"
        f"for _ in range({queues}):\n"
        "    s = P(); assert d.cuStreamCreate(ref(s), 1) == 0\n"
        f"    for _ in range(1000): assert launch(f, 64, {blocks}, {threads}, s) == 0\n"
        "time.sleep(0.05); print(json.dumps(gpm(0.4)))",
        SIMGPU_KERNEL_RULES=str(path),
        SIMGPU_LAUNCH_NS="0",
    )


@pytest.mark.parametrize(
    ("kind", "used"),
    [
        ("tensor", (95, 20, 60, 25)),
        ("fp32", (95, 30, 0, 20)),
        ("attention", (95, 20, 45, 12)),
        ("memory", (95, 80, 0, 90)),
        ("reduce", (90, 70, 0, 65)),
        ("sort", (85, 60, 0, 35)),
        ("gather", (85, 70, 0, 45)),
        ("other", (80, 50, 0, 33)),
    ],
)
def test_a_class_of_kernels_uses_its_part_of_the_device(
    bench: Bench, kind: str, used: tuple[int, ...]
) -> None:
    assert in_use(bench, kind, 132 * 32, 64) == pytest.approx((100, *used), abs=1)


def test_a_small_grid_uses_little_of_it(bench: Bench) -> None:
    """66 blocks of 4224 that would fit: half of the multiprocessors have one."""
    expected = (100, 95 / 2, 20 / 64, 60 / 64, 25 / 64)
    assert in_use(bench, "tensor", 66, 64) == pytest.approx(expected, abs=1)


def test_kernels_beside_one_another_add_up_to_all_of_it_at_most(bench: Bench) -> None:
    assert in_use(bench, "attention", 132 * 32, 64, queues=2) == pytest.approx((100, 100, 40, 90, 24), abs=1)
    assert in_use(bench, "attention", 132 * 32, 64, queues=3)[3] == pytest.approx(100)


@patient
def test_processes_that_take_turns_use_together_what_one_would(bench: Bench) -> None:
    path, trace = bench.directory / "rules", bench.directory / "trace"
    path.write_text("work 0 4000000 tensor\n")
    trace.unlink(missing_ok=True)
    settings = {"SIMGPU_KERNEL_RULES": str(path), "SIMGPU_TRACE": str(trace), "SIMGPU_SYNC": "block"}
    body = (
        f"{DRIVER}f = kernel(b'work'); print('ready', flush=True)\n"
        "while True: assert launch(f, 64, 132 * 32, 64) == d.cuCtxSynchronize() == 0\n"
    )
    workers = [bench.start(body, **settings) for _ in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    busy, _, _, tensor, _ = bench.run(f"{_MONITOR}time.sleep(0.2); print(json.dumps(gpm(0.6)))")
    for worker in workers:
        worker.kill()
        worker.wait()
    rows = read_trace(trace).rows
    assert np.median(rows["end"] - rows["start"]) == 8 * _MS, "mostly both had work"
    with figures():
        assert busy > 50
        assert 0.5 * busy < tensor < 0.7 * busy


def spans(bench: Bench, **env: str) -> Any:
    """A quarter of a second of work, a whole one, pauses: what NVML says, with times of CLOCK_MONOTONIC."""
    return bench.run(
        f"{_MONITOR}c = Cuda(); c.SetDeviceFlags(4); s = c.stream()\n"
        "offset = time.time_ns() - time.monotonic_ns(); polls = []\n"
        "def poll(until):\n"
        "    while time.monotonic() < until:\n"
        "        a = time.monotonic_ns(); u = n.nvmlDeviceGetUtilizationRates(h)\n"
        "        polls.append([a, time.monotonic_ns(), u.gpu, u.memory]); time.sleep(0.01)\n"
        "for i in range(8):\n"
        "    end = time.monotonic() + 0.25\n"
        "    if i in (0, 2, 3, 4, 5):\n"
        "        for _ in range(25): c.launch(10_000_000, s)\n"
        "    poll(end)\n"
        f"poll(time.monotonic() + {_WINDOW_MS / 1000 + 0.05})\n"
        "def samples(kind, since):\n"
        "    _, all = n.nvmlDeviceGetSamples(h, kind, since)\n"
        "    return [[x.timeStamp * 1000 - offset, x.sampleValue.uiVal] for x in all]\n"
        "gpu = samples(1, 0); last = (gpu[-1][0] + offset) // 1000\n"
        "print(json.dumps([polls, gpu, samples(2, 0),\n"
        "  error(n.nvmlDeviceGetSamples, h, 1, last + 1_000_000), error(n.nvmlDeviceGetSamples, h, 0, 0),\n"
        "  samples(1, last - 1_500_000)]))",
        SIMGPU_TRACE=str(bench.directory / "trace"),
        SIMGPU_NVML_WINDOW_MS=str(_WINDOW_MS),
        **env,
    )


def busy_percent(bench: Bench, begin: float, end: float) -> float:
    """What the trace reports of a stretch."""
    rows = read_trace(bench.directory / "trace").rows
    low, high = np.maximum(rows["start"], int(begin)), np.minimum(rows["end"], int(end))
    return 100 * float(np.maximum(high.astype(np.int64) - low.astype(np.int64), 0).sum()) / (end - begin)


def test_utilisation_goes_in_steps_and_lags_by_a_window_at_most(bench: Bench) -> None:
    polls, *_ = spans(bench)
    seen: dict[int, set[tuple[int, int]]] = {}
    for before, after, gpu, memory in polls:
        if before // (_WINDOW_MS * _MS) == after // (_WINDOW_MS * _MS):
            seen.setdefault(before // (_WINDOW_MS * _MS), set()).add((gpu, memory))
    assert len(seen) >= 4
    for number, values in seen.items():
        ((gpu, memory),) = values  # the same within a window
        truth = busy_percent(bench, (number - 1) * _WINDOW_MS * _MS, number * _WINDOW_MS * _MS)
        assert gpu == pytest.approx(truth, abs=5), "what is told is the window before"
        assert memory == pytest.approx(gpu / 3, abs=1)


def test_samples_have_the_times_of_their_windows(bench: Bench) -> None:
    _, gpu, memory, nothing_new, power, recent = spans(bench)
    assert (nothing_new, power) == (6, 3), "not found, not supported"
    times = [time for time, _ in gpu]
    assert all(abs(b - a - _WINDOW_MS * _MS) < _MS for a, b in pairwise(times)), "one a window"
    for end, percent in gpu:
        assert percent == pytest.approx(busy_percent(bench, end - _WINDOW_MS * _MS, end), abs=5)
    assert max(percent for _, percent in gpu) > 10, "however long it waited for a CPU, it gave the GPU work"
    assert [value for _, value in memory] == pytest.approx([value / 3 for _, value in gpu], abs=1)
    assert recent == gpu[-len(recent) :]
    assert 2 <= len(recent) <= 4


def test_a_process_is_told_once_a_window(bench: Bench) -> None:
    result = bench.run(
        f"{_MONITOR}c = Cuda(); s = c.stream()\n"
        "for _ in range(1000): c.launch(30_000_000, s)\n"  # busy until long after the questions
        f"time.sleep({2 * _WINDOW_MS / 1000 + 0.05}); begin = time.time_ns() // 1000\n"
        "(x,) = n.nvmlDeviceGetProcessUtilization(h, 0)\n"
        "again = error(n.nvmlDeviceGetProcessUtilization, h, begin)\n"
        "info = n.nvmlDeviceGetProcessesUtilizationInfo(h, 0)\n"
        "print(json.dumps([x.pid == os.getpid(), begin - x.timeStamp, x.smUtil, x.memUtil, again,\n"
        "  [[y.pid == os.getpid(), y.smUtil, y.memUtil] for y in info]]))",
        SIMGPU_NVML_WINDOW_MS=str(_WINDOW_MS),
    )
    own, age_us, sm, memory, again, info = result
    assert own is True
    assert age_us > -_WINDOW_MS * 1000
    assert (sm, memory) == (100, 33)
    assert again in (None, 6), "a window may have ended meanwhile"
    assert info == [[True, 100, 33]]
