"""What the simulated NVML offers follows from what the workloads do."""

from __future__ import annotations

import pytest

from tests.gpu_rows_support import ask
from tests.simgpu_programs.harness import Bench, figures, patient

SETTLED = "time.sleep(0.5); print(json.dumps(rows()))"


@patient
def test_gpm_reports_the_time_between_two_samples(bench: Bench, workload: int) -> None:
    (row,) = ask(bench.directory, SETTLED, interval_s=0.2)
    with figures():
        assert 30 <= row["sm_active_percent"] <= 50, "0.8 of a half"
        assert row["tensor_active_percent"] == pytest.approx(row["sm_active_percent"] / 2, abs=0.2)
        assert row["dram_bandwidth_percent"] == pytest.approx(row["sm_active_percent"] / 2.4, abs=0.2)
        assert row["sm_occupancy_percent"] == pytest.approx(row["sm_active_percent"] * 0.625, abs=0.2)


@patient
def test_a_process_has_its_memory_and_its_share_of_the_gpu(bench: Bench, workload: int) -> None:
    (row,) = ask(bench.directory, SETTLED)
    assert row["clients"] == [
        {"pid": workload, "type": "C", "memory_bytes": 356 << 20, "gpu_instance": None, "idle_since_ns": None}
    ]
    assert row["processes"] == [[workload, 356 << 20]]
    assert row["process_utilization"]["pid"] == [workload]
    with figures():
        assert 35 <= row["process_utilization"]["sm_percent"][0] <= 65


@patient
def test_on_a_gpu_that_is_cut_a_process_is_on_the_first_instance(bench: Bench, workload: int) -> None:
    body = "time.sleep(1.2); print(json.dumps(rows()))"
    (row,) = ask(bench.directory, body, interval_s=0.2, SIMGPU_NVML_FAULT="mig:2")
    first, second = row["mig"]
    assert row["clients"][0]["gpu_instance"] == first["gpu_instance"] == 1
    assert (first["memory_used_bytes"], second["memory_used_bytes"]) == (356 << 20, 0)
    with figures():
        assert first["sm_active_percent"] > 20
    assert second["sm_active_percent"] == 0


@patient
def test_nvlink_carries_what_ranks_send_each_other(bench: Bench) -> None:
    ranks = (
        "import ctypes\nfrom nccl import Nccl, FLOAT\n"
        "c, n = Cuda(), Nccl(); ids = n.unique_id()\n"
        "def rank(i):\n"
        "    c.SetDevice(i); comm = n.join(i, 2, ids); s = c.stream()\n"
        "    n.all_reduce(comm, s, 1 << 20); c.StreamSynchronize(s)\n"
        "    if i == 0: print('ready', flush=True)\n"
        "    end = time.monotonic() + 120\n"  # killed long before, unless the test itself is
        "    while time.monotonic() < end:\n"
        "        n.all_reduce(comm, s, 1 << 20); c.StreamSynchronize(s); time.sleep(0.01)\n"
        "t = [threading.Thread(target=rank, args=(i,)) for i in range(2)]\n"
        "[x.start() for x in t]; [x.join() for x in t]\n"
    )
    process = bench.start(ranks, SIMGPU_DEVICES="2")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        rows = ask(bench.directory, SETTLED, interval_s=0.3, SIMGPU_DEVICES="2")
    finally:
        process.kill()
        process.wait()
    for row in rows:  # 4 MiB each at most every 10 ms; of two ranks a ring sends as much as there is
        with figures():
            assert 4 << 20 < row["nvlink_tx_bytes_per_second"] < 500 << 20
        assert row["nvlink_rx_bytes_per_second"] == row["nvlink_tx_bytes_per_second"]
