"""Ranks of the simulated NCCL wait for one another on their devices, as in reality."""

from __future__ import annotations

import json
import time

import pytest

from gputop.simgpu import read_trace
from tests.nccl_ranks import RANK, results, start
from tests.simgpu_programs.harness import Bench, figures, patient
from tests.waiting import HANGS_S

_STEPS = (
    "w = []\n"
    "for i in range(20):\n"
    "    if rank == 1: time.sleep(0.015)\n"
    "    c.launch(1_000_000, s); assert n.all_reduce(comm, s, 1_000_000) == 0; c.launch(1000, s)\n"
    "    w.append(c.timed(c.StreamSynchronize, s))\n"
    "assert n.CommDestroy(comm) == 0\n"
    "print(json.dumps([sorted(x[1] for x in w[1:])[10], sum(x[2] for x in w[1:])]))"
)


@pytest.mark.parametrize("flags", ["0", "4"])
@patient
def test_the_early_rank_waits_for_the_late_one(bench: Bench, flags: str) -> None:
    trace = bench.directory / "trace"
    trace.unlink(missing_ok=True)
    processes = start(bench, _STEPS, FLAGS=flags, SIMGPU_TRACE=str(trace))
    (early, early_cpu), (late, _) = results(processes)
    with figures():
        assert 15 < early - late < 20
        assert late < 4
        assert (early_cpu > 150) is (flags == "0"), "it spins, or it sleeps"
    rows = read_trace(trace)
    first, second = (rows.of(process.pid, kinds={"comm"}) for process in processes)
    assert len(first) == len(second) == 20
    assert (first["start"] == second["start"]).all(), "it begins and ends for all at the same time"
    assert (first["end"] == second["end"]).all()
    assert set(first["end"] - first["start"]) == {20_000 + 4_000_000 // 100}
    waits = rows.of(processes[0].pid, kinds={"comm_wait"})
    assert len(waits) == 20
    with figures():
        assert 14e6 < sorted(waits["end"] - waits["start"])[10] < 20e6
    for process in bench.processes():
        assert process.calls["ncclAllReduce"] == 20
        assert process.calls["cuLaunchKernelEx"] == 20, "it enters the driver by the name that a probe knows"


@patient
def test_ranks_have_devices_of_their_own(bench: Bench) -> None:
    trace = bench.directory / "trace"
    trace.unlink(missing_ok=True)
    head = RANK.replace("int(os.environ.get('DEVICE', 0))", "int(os.environ['RANK'])")
    common = {"WORLD": "2", "ID": str(bench.directory / f"id-{time.monotonic_ns()}"), "SIMGPU_DEVICES": "2"}
    ranks = [
        bench.start(head + _STEPS, RANK=str(rank), SIMGPU_TRACE=str(trace), **common) for rank in range(2)
    ]
    (early, _), (late, _) = results(ranks)
    with figures():
        assert 15 < early - late < 20
    rows = read_trace(trace)
    assert [set(rows.of(p.pid)["device"].tolist()) for p in ranks] == [{0}, {1}]


def test_a_rank_goes_on_while_its_program_sleeps(bench: Bench) -> None:
    """The one that sleeps looks at nothing until the other one's wait has ended."""
    done = bench.directory / "done"
    body = (
        "import pathlib\ndone = pathlib.Path(os.environ['DONE']); end = time.monotonic() + 30\n"
        "for _ in range(3): assert n.all_reduce(comm, s) == 0\n"
        "while rank == 1 and not done.exists() and time.monotonic() < end: time.sleep(0.01)\n"
        "slept = done.exists(); c.StreamSynchronize(s); done.touch()\n"
        "print(json.dumps(slept))"
    )
    assert results(start(bench, body, DONE=str(done))) == [False, True]


@patient
def test_events_and_other_streams_wait_for_a_collective(bench: Bench) -> None:
    body = (
        "o = c.stream(1); e = c.event(); time.sleep(0.03 * rank); n.all_reduce(comm, s)\n"
        "c.EventRecord(e, s); c.StreamWaitEvent(o, e, 0); c.launch(1000, o)\n"
        "q = [c.StreamQuery(s), c.EventQuery(e), c.StreamQuery(o)]\n"
        "w = c.timed(c.StreamSynchronize, o)[1]; c.launch(1000, s)\n"
        "print(json.dumps([q, w, c.timed(c.DeviceSynchronize)[1], c.EventQuery(e)]))"
    )
    (query, waited, rest, after), _ = results(start(bench, body))
    with figures():
        assert query == [600, 600, 600]
        assert 20 < waited < 60
        assert rest < 10
    assert after == 0


def test_a_group_is_one_launch_at_its_outermost_end(bench: Bench) -> None:
    body = (
        "peer, z = 1 - rank, ctypes.c_size_t\n"
        "n.GroupStart(); n.GroupStart()\n"
        "e = [n.Send(None, z(64), FLOAT, peer, comm, s), n.Recv(None, z(64), FLOAT, peer, comm, s),\n"
        "     n.all_reduce(comm, s, 5)]\n"
        "e += [n.GroupEnd(), c.StreamQuery(s), n.GroupEnd(), c.StreamSynchronize(s), n.GroupEnd()]\n"
        "print(json.dumps(e))"
    )
    assert results(start(bench, body)) == [[0, 0, 0, 0, 0, 0, 0, 5]] * 2
    assert [process.calls["cuLaunchKernelEx"] for process in bench.processes()] == [1, 1]


def test_all_calls_take_their_arguments_where_the_real_ones_do(bench: Bench) -> None:
    body = (
        "z = ctypes.c_size_t; r = []\n"
        "def t(code): c.StreamSynchronize(s); r.append(code)\n"
        "t(n.Reduce(None, None, z(1000), FLOAT, 0, 0, comm, s))\n"
        "t(n.Broadcast(None, None, z(1000), FLOAT, 0, comm, s))\n"
        "t(n.Bcast(None, z(1000), FLOAT, 0, comm, s))\n"
        "t(n.AllGather(None, None, z(1000), FLOAT, comm, s))\n"
        "t(n.ReduceScatter(None, None, z(1000), FLOAT, 0, comm, s))\n"
        # while the other rank is there for sure: it still has something to send, or to receive
        "i = ctypes.c_int(); facts = []\n"
        "for f in (n.CommCount, n.CommUserRank, n.CommCuDevice, n.CommGetAsyncError):\n"
        "    assert f(comm, ctypes.byref(i)) == 0; facts.append(i.value)\n"
        "t((n.Send if rank else n.Recv)(None, z(1000), FLOAT, 1 - rank, comm, s))\n"
        "t(n.lib.pncclAllReduce(None, None, z(1000), FLOAT, 0, comm, s))\n"
        "t(n.all_reduce(None, s)); t(n.AllReduce(None, None, z(1), 99, 0, comm, s))\n"
        "t(n.MemAlloc(None, z(1)))\n"
        "n.GetVersion(ctypes.byref(i)); n.GetErrorString.restype = ctypes.c_char_p\n"
        "print(json.dumps([r, facts, i.value, n.GetErrorString(5).decode()]))"
    )
    trace = bench.directory / "trace"
    processes = start(bench, body, SIMGPU_TRACE=str(trace), SIMGPU_NCCL_GBPS="1", SIMGPU_NCCL_LATENCY_NS="0")
    for rank, (codes, facts, version, text) in enumerate(results(processes)):
        assert codes == [0] * 7 + [4, 4, 5]
        assert facts == [2, rank, 0, 0]
        assert version == 23203
        assert text.startswith("invalid usage")
    rows = read_trace(trace).of(processes[0].pid, kinds={"comm"})
    assert (rows["end"] - rows["start"]).tolist() == [4000, 4000, 4000, 8000, 8000, 4000, 4000]


def test_one_process_may_hold_all_ranks(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nfrom nccl import Nccl\nc, n = Cuda(), Nccl(); c.Free(None)\n"
        "comms = (ctypes.c_void_p * 2)()\n"
        "assert n.CommInitAll(comms, 2, (ctypes.c_int * 2)(1, 0)) == 0\n"
        "streams = []\n"
        "for d in (1, 0): c.SetDevice(d); streams.append(c.stream(1))\n"
        "n.GroupStart()\n"
        "e = [n.all_reduce(ctypes.c_void_p(k), s) for k, s in zip(comms, streams)]\n"
        "e += [n.GroupEnd(), *(c.StreamSynchronize(s) for s in streams)]\n"
        "print(json.dumps(e + [n.CommDestroy(ctypes.c_void_p(k)) for k in comms]))",
        SIMGPU_DEVICES="2",
        SIMGPU_TRACE=str(bench.directory / "trace"),
    )
    assert result == [0] * 7
    rows = read_trace(bench.directory / "trace").of(kinds={"comm"})
    assert sorted(rows["device"].tolist()) == [0, 1]


def test_threads_may_be_ranks_and_join_in_a_group(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nfrom nccl import Nccl\nc, n = Cuda(), Nccl(); c.Free(None); u = n.unique_id()\n"
        "comms = [ctypes.c_void_p() for _ in range(4)]; n.GroupStart()\n"
        "for r, k in enumerate(comms): assert n.CommInitRank(ctypes.byref(k), 4, u, r) == 0\n"
        "r = [n.GroupEnd()]\n"
        "def one(k): s = c.stream(1); r.append(n.all_reduce(k, s)); r.append(c.StreamSynchronize(s))\n"
        "t = [threading.Thread(target=one, args=(k,)) for k in comms]\n"
        "[x.start() for x in t]; [x.join() for x in t]\n"
        "print(json.dumps(r))"
    )
    assert result == [0] * 9


@patient
def test_a_missing_peer_costs_no_cpu_and_an_abort_ends_it(bench: Bench) -> None:
    body = (
        "if rank == 1: os.kill(os.getpid(), 9)\n"
        "n.all_reduce(comm, s); i = ctypes.c_int(); t = time.monotonic()\n"
        "while i.value == 0 and time.monotonic() < t + 5: n.CommGetAsyncError(comm, ctypes.byref(i))\n"
        "cpu = time.process_time(); time.sleep(0.5); cpu = time.process_time() - cpu\n"
        "q = c.StreamQuery(s); a = n.CommAbort(comm)\n"
        "print(json.dumps([i.value, q, cpu, a, c.StreamSynchronize(s)]))"
    )
    survivor, killed = start(bench, body)
    out, _ = survivor.communicate(timeout=HANGS_S)
    killed.wait(timeout=HANGS_S)
    error, query, cpu, abort, sync = json.loads(out)
    with figures():
        assert (error, query, abort, sync) == (6, 600, 0, 0)
        assert cpu < 0.05


def test_a_waiting_collective_keeps_the_device_busy(bench: Bench) -> None:
    """The late one comes when the other has waited for long enough."""
    begun = bench.directory / "begun"
    body = (
        "import pathlib\nbegun = pathlib.Path(os.environ['BEGUN']); end = time.monotonic() + 30\n"
        "if rank == 0: n.all_reduce(comm, s); begun.touch()\n"
        "while not begun.exists() and time.monotonic() < end: time.sleep(0.01)\n"
        "time.sleep(0.6)\n"
        "if rank == 1: n.all_reduce(comm, s)\n"
        "c.StreamSynchronize(s)"
    )
    processes = start(bench, body, BEGUN=str(begun))
    results(processes)
    busy = {process.pid: process.kernel_busy_ns for process in bench.processes()}
    assert busy[processes[0].pid] > 500_000_000, "its kernel spins on the device"
    assert busy[processes[1].pid] < 100_000_000
