"""Which GPU a process uses: NVML's list, else the devices that its CUDA calls named, else unknown and why."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputop.commands.screen.text import render_text
from gputop.engine.engine import Engine
from gputop.engine.frame import Frame
from gputop.engine.gpus.gpu_of import Attribution, Device, GpuUse, UnknownGpuError, visible_devices
from probes.proc.roster import Roster
from probes.proc.used_devices import DeviceCalls
from probes.schema import THREAD_STATE_DTYPE
from probes.source import GPUS, Sample
from tests import items
from tests.gputop_command import GPUTOP
from tests.items import SECOND, START
from tests.simgpu_programs.harness import Bench

EQUAL = (Device(0, "GPU-aaaa-1", "H200"), Device(1, "GPU-bbbb-2", "H200"), Device(2, "GPU-bbcc-3", "H200"))
MIXED = (Device(0, "GPU-aaaa-1", "T4"), Device(1, "GPU-bbbb-2", "H200"))
NO_LIST = "notsupported:nvmlDeviceGetComputeRunningProcesses"
HIDDEN = "a driver call that gputop does not trace made its context"
# makes contexts of the driver's own on devices 1, 2 and 3, each in another of the ways that CUDA 12 and 13
# have, and uses them until a file is there
DRIVER_USER = (
    "import ctypes, os, sys, time\n"
    "d = ctypes.CDLL('libcuda.so.1'); c, p = ctypes.c_void_p(), ctypes.c_uint64()\n"
    "assert d.cuInit(0) == 0\n"
    "makers = ((d.cuCtxCreate_v2, 0, 1), (d.cuCtxCreate_v3, None, 0, 0, 2), (d.cuCtxCreate_v4, None, 0, 3))\n"
    "for make, *arguments in makers:\n"
    "    assert make(ctypes.byref(c), *arguments) == 0\n"
    "    assert d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1 << 20)) == 0\n"
    "while not os.path.exists({stop!r}):\n"
    "    d.cuMemsetD8Async(p, 0, ctypes.c_size_t(64), None); time.sleep(0.01)\n"
)
# asks for a device, uses it until a file is there, and says its number
USER = (
    "import os, sys, time\nfrom cuda import Cuda\n"
    "c = Cuda(); d = {device}\n"
    "assert d is None or c.SetDevice(d) == 0\n"
    "p = c.malloc(1 << 20); print('pid', os.getpid(), file=sys.stderr, flush=True)\n"
    "while not os.path.exists({stop!r}): c.Memset(p, 0, 1 << 20); time.sleep(0.01)\n"
)


def seen(visible: str | None, order: str | None = None, **more: Any) -> dict[str, Any]:
    """Facts of a process with these variables."""
    return {"cuda_visible_devices": visible, "cuda_device_order": order, **more}


# -- from CUDA's numbers to NVML's ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        (None, [0, 1, 2]),
        ("1,0", [1, 0]),
        ("2", [2]),
        (" 2 , 0", [2, 0]),
        ("", []),
        ("-1", []),
        ("1,-1,0", [1]),
        ("0,7,1", [0]),
        ("NoDevFiles", []),
        ("GPU-bbcc", [2]),
        ("GPU-aaaa-1,1", [0, 1]),
        ("GPU-bb,0", []),  # two GPUs begin so: it names none
        ("GPU-dddd,0", []),
    ],
)
def test_the_list_of_visible_devices_is_read_as_cuda_reads_it(text: str | None, indices: list[int]) -> None:
    assert visible_devices(seen(text), EQUAL) == indices


@pytest.mark.parametrize(
    ("facts", "devices", "reason"),
    [
        ({}, EQUAL, "environment"),
        (seen("MIG-1234"), EQUAL, "MIG"),
        (seen("1,1"), EQUAL, "twice"),
        (seen(None), MIXED, "CUDA_DEVICE_ORDER"),
        (seen("1", "FASTEST_FIRST"), MIXED, "CUDA_DEVICE_ORDER"),
        (seen("0", namespace_pid=7), EQUAL, "container"),
    ],
)
def test_what_is_not_certain_is_unknown_with_the_reason(
    facts: Mapping[str, Any], devices: Sequence[Device], reason: str
) -> None:
    with pytest.raises(UnknownGpuError, match=reason):
        visible_devices(facts, devices)


@pytest.mark.parametrize(
    ("facts", "devices", "indices"),
    [
        (seen("1", "PCI_BUS_ID"), MIXED, [1]),
        (seen("GPU-bbbb"), MIXED, [1]),
        (seen("0", namespace_pid=7), MIXED[:1], [0]),
        (seen("GPU-bbcc", namespace_pid=7), EQUAL, [2]),
    ],
)
def test_certain_in_spite_of_it(
    facts: Mapping[str, Any], devices: Sequence[Device], indices: list[int]
) -> None:
    assert visible_devices(facts, devices) == indices


# -- who says it ---------------------------------------------------------------------------------


def use(facts: Mapping[str, Any], usage: dict[int, dict[int, int]] | None, pid: int = 10) -> GpuUse:
    return Attribution(usage, EQUAL, {pid: facts}).of(pid, facts)


def test_nvml_is_believed_before_the_calls() -> None:
    facts = seen(None, cuda_devices=[1])
    assert use(facts, {10: {2: 5, 0: 3}}) == GpuUse((0, 2), "nvml", "", 8)
    assert use(facts, None) == GpuUse((1,), "calls")
    assert use(facts, {99: {0: 1}}) == GpuUse((1,), "calls"), "not listed, but it has made calls"


def test_a_process_that_nvml_does_not_list_and_that_made_no_call_uses_none() -> None:
    assert use(seen(None), {99: {0: 1}}) == GpuUse((), "nvml", "", 0)
    assert use(seen(None), None).gpus is None
    assert "NVML lists no processes" in use(seen(None), None).unknown


def test_a_device_chosen_before_is_unknown_unless_there_is_only_one() -> None:
    facts = seen(None, cuda_devices_missed=True)
    assert use(facts, None) == GpuUse(None, "", "it chose its GPU before gputop watched it")
    assert Attribution(None, EQUAL[:1], {10: facts}).of(10, facts) == GpuUse((0,), "calls")


def test_a_device_that_no_traced_call_named_is_unknown_unless_there_is_only_one() -> None:
    facts = seen(None, cuda_devices_hidden=True)
    assert use(facts, None) == GpuUse(None, "", HIDDEN)
    assert use(facts, {99: {0: 1}}) == GpuUse(None, "", HIDDEN), "NVML does not list it"
    assert use(facts, {10: {2: 5}}) == GpuUse((2,), "nvml", "", 5)
    assert Attribution(None, EQUAL[:1], {10: facts}).of(10, facts) == GpuUse((0,), "calls")


def test_a_device_that_is_not_visible_is_none() -> None:
    assert use(seen("2", cuda_devices=[0, 1]), None) == GpuUse((2,), "calls")


def test_numbers_of_a_container_count_when_only_one_process_fits() -> None:
    inside, outside = {"namespace_pid": 7}, {"namespace_pid": None}
    assert Attribution({7: {1: 5}}, EQUAL, {100: inside}).of(100, inside) == GpuUse((1,), "nvml", "", 5)
    both = Attribution({7: {1: 5}}, EQUAL, {100: inside, 7: outside})
    for pid, facts in ((100, inside), (7, outside)):
        assert both.of(pid, facts).gpus is None
        assert "lists a process 7" in both.of(pid, facts).unknown
    ended = {**inside, "exited_ns": 1}
    assert Attribution({7: {1: 5}}, EQUAL, {100: inside, 101: ended}).of(100, inside).gpus == (1,)


# -- what the records tell -----------------------------------------------------------------------


def told(*records: Any, complete: bool = True) -> list[tuple[int, dict[str, Any]]]:
    calls = DeviceCalls(lambda _: complete)
    calls.expect(10)
    return list(calls.notice(np.concatenate(records)))


def test_each_named_device_is_reported_once() -> None:
    calls = [items.call(START + row, 5, "cudaSetDevice", aux=row % 2 + (7 << 32)) for row in range(6)]
    assert told(*calls) == [(10, {"cuda_devices": [0]}), (10, {"cuda_devices": [0, 1]})]


def test_a_choice_in_sight_does_not_report_those_that_other_threads_made_before() -> None:
    calls = [items.call(START + row, 5, "cudaSetDevice", aux=row) for row in range(2)]
    late = {"cuda_devices": [0], "cuda_devices_missed": True}
    assert told(*calls, complete=False) == [(10, late), (10, {"cuda_devices": [0, 1]})]


def test_a_context_names_its_device_where_the_runtime_is_not_seen() -> None:
    assert told(items.call(START, 5, "cuDevicePrimaryCtxRetain", aux=2)) == [(10, {"cuda_devices": [2]})]


def test_a_call_that_failed_names_nothing() -> None:
    assert told(items.call(START, 5, "cudaSetDevice", aux=9, ret=101)) == []


def test_who_names_none_uses_the_first_if_all_its_calls_were_seen() -> None:
    launch = items.call(START, 5)
    assert told(launch) == [(10, {"cuda_devices": [0]})]
    assert told(launch, complete=False) == [(10, {"cuda_devices_missed": True})]
    assert told(items.call(START, 5, "cudaSetDeviceFlags")) == [], "makes no context"
    assert told(items.off(START, 5, 5, op=int(launch["op"][0]))) == [], "no call"


def test_the_driver_has_no_first_device() -> None:
    """cuCtxCreate names its device; what uses a context that no traced call made is on any."""
    alloc = items.call(START + 1, 5, "cuMemAlloc")
    assert told(items.call(START, 5, "cuCtxCreate", aux=2), alloc) == [(10, {"cuda_devices": [2]})]
    assert told(alloc) == [(10, {"cuda_devices_hidden": True})]
    assert told(alloc, complete=False) == [(10, {"cuda_devices_missed": True})]


def test_a_process_whose_birth_was_lost_is_known_from_the_next_mark_on() -> None:
    roster = Roster()
    launch = items.call(START, 5)
    assert [sample.data for sample in roster.notice(launch)] == [], "nobody has told of it"
    states = np.zeros(1, THREAD_STATE_DTYPE)
    states["pid"], states["tid"] = 10, 5
    list(roster.facts(states, START))
    (sample,) = roster.notice(launch)
    assert sample.data == {"pid": 10, "watched": True, "cuda_devices_missed": True}
    assert list(roster.notice(launch)) == [], "once"


def frame_of(*facts: dict[str, Any], devices: Sequence[Device] = EQUAL) -> Frame:
    """A frame with these processes, on GPUs whose NVML lists no processes."""
    engine = Engine(items.HEADER)
    rows = [{"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "processes": None} for gpu in devices]
    engine.feed(Sample(GPUS, START, {"gpus": rows, "error": ""}))
    for row in facts:
        engine.feed(items.process(**row))
    engine.feed(items.mark(1, START + SECOND))
    return engine.frame()


def test_an_unknown_gpu_is_a_question_mark_and_a_problem() -> None:
    frame = frame_of(
        {"pid": 10, "cuda_devices_missed": True}, {"pid": 11, "cuda_devices_missed": True}, {"pid": 12}
    )
    assert frame.problems == ("which GPU 10, 11 use is not known: it chose its GPU before gputop watched it",)
    assert frame.processes[0].gpus is None
    hidden = frame_of({"pid": 10, "cuda_devices_hidden": True}, {"pid": 11})
    assert hidden.problems == (f"which GPU 10 uses is not known: {HIDDEN}",)
    assert render_text(frame, width=None).splitlines()[-1].split()[:4] == ["12", "process12", "me", "?"]


def test_the_number_within_the_container_stands_beside_the_name() -> None:
    assert "process10 (7)" in render_text(frame_of({"pid": 10, "namespace_pid": 7}), width=None)
    assert "(" not in render_text(frame_of({"pid": 10}), width=None).splitlines()[-1]


# -- two simulated GPUs, permuted ----------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.env |= {"SIMGPU_DEVICES": "2"}
    return made


def user_program(bench: Bench, device: int | None) -> list[str]:
    """The command of a process that uses a device until the file ``stop`` is there."""
    return [sys.executable, "-c", USER.format(device=device, stop=str(bench.directory / "stop"))]


def number_in(process: subprocess.Popen[str]) -> int:
    """The number that the process itself says it has."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("pid "):
            return int(line.split()[1])
    pytest.fail("the process ended before it used its device")


@contextmanager
def user(bench: Bench, device: int | None, within: Sequence[str] = (), **env: str) -> Iterator[int]:
    """A running process that uses a device; its number, as it knows it."""
    process = subprocess.Popen(
        [*within, *user_program(bench, device)], env=bench.env | env, stderr=subprocess.PIPE, text=True
    )
    try:
        yield number_in(process)
    finally:
        (bench.directory / "stop").touch()
        process.communicate()


def truth(bench: Bench, pid: int) -> list[int]:
    """The GPUs on which the simulated NVML has the process: asked by another program than gputop."""
    body = (
        "import json, pynvml as n\nn.nvmlInit()\n"
        "found = [[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(i))]"
        " for i in range(n.nvmlDeviceGetCount())]\nprint(json.dumps(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", body], env=bench.env, check=True, text=True, capture_output=True
    )
    return [index for index, pids in enumerate(json.loads(done.stdout)) if pid in pids]


def observed(bench: Bench, *words: str, **env: str) -> dict[str, Any]:
    """A frame as gputop prints it."""
    done = subprocess.run(
        [*GPUTOP, "--once", "--json", "--duration", "1.5", *words],
        env={**bench.env, **env},
        check=True,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row_of(frame: dict[str, Any], pid: int) -> dict[str, Any]:
    return next(row for row in frame["processes"] if row["pid"] == pid)


@pytest.mark.ebpf
def test_nvml_s_list_says_the_gpu_of_a_running_process(bench: Bench) -> None:
    users = ((0, "1,0"), (1, "1,0"), (None, "1,0"), (None, "0,1"))
    with ExitStack() as running:
        pids = [
            running.enter_context(user(bench, device, CUDA_VISIBLE_DEVICES=order)) for device, order in users
        ]
        found = observed(bench, "--pid", ",".join(map(str, pids)))
        for pid in pids:
            row = row_of(found, pid)
            assert (row["gpus"], row["gpus_source"]) == (truth(bench, pid), "nvml")
            assert row["gpu_memory_bytes"] > 1 << 20


@pytest.mark.ebpf
@pytest.mark.parametrize("way", ["multi", pytest.param("perf", marks=pytest.mark.long)])
@pytest.mark.parametrize(("device", "order"), [(0, "1,0"), (1, "1,0"), (None, "1,0"), (None, "0,1")])
@pytest.mark.mainly("0-1,0-multi")
def test_without_nvml_s_list_the_calls_say_it(bench: Bench, device: int | None, order: str, way: str) -> None:
    env = {"CUDA_VISIBLE_DEVICES": order, "SIMGPU_NVML_FAULT": NO_LIST, "GPUTOP_ATTACH": way}
    row, expected = observed_from_its_start(bench, user_program(bench, device), env)
    assert (row["gpus"], row["gpus_source"], row["gpus_unknown"]) == (expected, "calls", "")
    assert len(expected) == 1
    assert row["gpu_memory_bytes"] is None, "NVML tells of no process"


def observed_from_its_start(
    bench: Bench, command: Sequence[str], env: Mapping[str, str]
) -> tuple[dict[str, Any], list[int]]:
    """The row of a command that gputop starts, and the GPUs that it really uses."""
    gputop = subprocess.run(
        [*GPUTOP, "--once", "--json", "--duration", "1.5", "--", *command],
        env=bench.env | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    goes_on = re.search(r"keeps running as process (\d+)", gputop.stderr)
    assert goes_on is not None
    pid = int(goes_on[1])
    expected = truth(bench, pid)
    (bench.directory / "stop").touch()
    return row_of(json.loads(gputop.stdout), pid), expected


@pytest.mark.ebpf
@pytest.mark.parametrize("way", ["multi", pytest.param("perf", marks=pytest.mark.long)])
def test_a_context_of_the_driver_s_own_is_on_its_device_or_on_an_unknown_one(bench: Bench, way: str) -> None:
    """On the smaller set of functions the call that made it is not seen: then nothing is claimed."""
    bench.env["SIMGPU_DEVICES"] = "4"
    env = {"CUDA_VISIBLE_DEVICES": "2,0,3,1", "SIMGPU_NVML_FAULT": NO_LIST, "GPUTOP_ATTACH": way}
    body = DRIVER_USER.format(stop=str(bench.directory / "stop"))
    row, expected = observed_from_its_start(bench, [sys.executable, "-c", body], env)
    assert expected == [0, 1, 3]
    if way == "multi":
        assert (row["gpus"], row["gpus_source"]) == (expected, "calls")
    else:
        assert (row["gpus"], row["gpus_unknown"]) == (None, HIDDEN)


@pytest.mark.ebpf
@pytest.mark.long
def test_a_choice_made_before_gputop_came_is_unknown_with_the_reason(bench: Bench) -> None:
    with user(bench, 1) as pid:
        frame = observed(bench, "--pid", str(pid), SIMGPU_NVML_FAULT=NO_LIST)
    row = row_of(frame, pid)
    assert (row["gpus"], row["gpus_source"]) == (None, "")
    assert row["gpus_unknown"] == "it chose its GPU before gputop watched it"
    assert f"which GPU {pid} uses is not known: {row['gpus_unknown']}" in frame["problems"]


@pytest.mark.ebpf
def test_a_process_in_a_pid_namespace_is_shown_with_both_numbers(bench: Bench) -> None:
    within = ("unshare", "--pid", "--fork", "--kill-child")
    with user(bench, 1, within) as inner:
        frame = observed(bench)
    (row,) = [row for row in frame["processes"] if str(bench.directory) in row["command"]]
    assert row["namespace_pid"] == inner
    assert row["pid"] != inner
    assert (row["gpus"], row["gpus_source"]) == ([1], "nvml"), "the simulated NVML lists the inner number"
