"""Small made-up programs, one for each cause that no recording shows: what docs/causes/ prints of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from gputop.analysis.answer.report import Report
from probes.schema import Kind, OffFlag
from probes.source import FRAMES, GPUS, PLACES, SHAPES, Sample
from probes.stacks.stack_samples import kernel_number
from tests import items
from tests.items import START
from tests.programs import (
    COPY,
    COPY_ASYNC,
    D2H,
    DEVICE_SYNC,
    FSYNC,
    FUTEX,
    H2D,
    LAUNCH,
    MAIN,
    PREAD,
    RECVFROM,
    SYNC,
    US,
    Program,
    started,
)
from tests.traced_stories import back_to_back, late_workers, queued

WORKER, HOLDER, STRANGER, OTHER = 20, 11, 77, 30
CODE = 1 << 62 | 1  # a stack
AUTOGRAD = 900  # by its name the program is one of PyTorch
STEPS, STEP_US, BUSY_US = 40, 12_000, 4_000
GIL_ADDRESS = 0x1000
NANOSLEEP = 35
FAULT, MUNMAP = 0xFFFF, 11  # no system call; one that changes the address space
IRQ, FORCED = int(OffFlag.WAKER_IRQ), int(OffFlag.QUEUED)
Between = Callable[[Program, int], None]


def loop(between: Between, *waits: str) -> Program:
    """Steps that launch, wait 4 ms for the GPU, and do something for up to 8 ms before the next launch."""
    program = started()
    program.samples.append(items.names(START, {MAIN: "python", AUTOGRAD: "pt_autograd_0"}))
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        for wait in waits or (SYNC,):
            program.call(wait, begin + 20, begin + BUSY_US)
        between(program, begin + BUSY_US)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    return program


def nothing(_program: Program, _at: int) -> None:
    """The thread computes by itself."""


def scalar() -> Program:
    """``loss.item()`` each step."""
    program = started()
    program.samples.append(items.names(START, {MAIN: "python", AUTOGRAD: "pt_autograd_0"}))
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(COPY_ASYNC, begin + 20, begin + 30, kind=D2H, bytes=4)
        program.call(SYNC, begin + 40, begin + 9000)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    return program


def moved() -> Program:
    """``x.to(device)`` of a batch waits for the GPU, then Python works before its first launch."""
    program = started()
    program.samples.append(items.names(START, {MAIN: "python", AUTOGRAD: "pt_autograd_0"}))
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(COPY_ASYNC, begin + 20, begin + 30, kind=H2D, bytes=6 << 20)
        program.call(SYNC, begin + 35, begin + 5000)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    return program


def launches() -> Program:
    """150 launches of 5 us, one every 15 us, then a short wait."""
    program, now = started(), 0
    program.samples.append(items.names(START, {MAIN: "python", AUTOGRAD: "pt_autograd_0"}))
    for _ in range(30):
        for _ in range(150):
            program.call(LAUNCH, now, now + 5)
            now += 15
        program.call(SYNC, now, now + 20)
        now += 30
    return program


def collected() -> Program:
    """``loss.item()`` of a GPU that works for a millisecond, then ten of something else."""
    program = started()
    program.samples.append(items.names(START, {MAIN: "python", AUTOGRAD: "pt_autograd_0"}))
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(COPY_ASYNC, begin + 20, begin + 30, kind=D2H, bytes=4)
        program.call(SYNC, begin + 40, begin + 1_000)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    return program


def printed() -> Program:
    """Every 200 ms a tensor of 200 elements is printed."""
    program, now = started(), 0
    program.samples.append(items.names(START, {MAIN: "python", AUTOGRAD: "pt_autograd_0"}))
    for _ in range(5):
        program.call(LAUNCH, now, now + 10)
        program.call(SYNC, now + 20, now + 20_000)
        now += 20_030
        for _ in range(200):
            program.call(COPY_ASYNC, now, now + 5, kind=D2H, bytes=4)
            program.call(SYNC, now + 5, now + 15)
            now += 40
    program.call(LAUNCH, now, now + 10)
    return program


def loader(does: Between) -> Program:
    """A worker process prepares the batch; ``does`` is what it does for 7 ms."""

    def waits(program: Program, at: int) -> None:
        program.off(at + 10, at + 7900, op=0, waker_pid=WORKER, waker_tid=WORKER)
        does(program, at + 500)
        program.call(COPY_ASYNC, at + 7950, at + 7980, kind=H2D, bytes=4 << 20)

    program = loop(waits)
    program.starts(WORKER, maker=MAIN)
    program.samples.append(items.names(START, {WORKER: "pt_data_worker"}, pid=WORKER))
    return program


def starved(program: Program, at: int) -> None:
    """It is ready to run, and a video encoder has its CPU."""
    program.preempted(at, at + 7000, pid=WORKER, queue_cpu=1)
    running = {"pid": STRANGER, "tid": STRANGER, "cpu": 1, "duration": 7000 * US}
    program.records.append(items.event(Kind.OCCUPANT, START + (at + 7000) * US, **running))
    program.samples.append(items.process(STRANGER, name="ffmpeg", watched=False))


def stays(op: int, **more: int) -> Between:
    """The main thread, or another one, sleeps for 7 ms in a system call."""

    def between(program: Program, at: int) -> None:
        program.off(at + 100, at + 7100, op=op, **more)

    return between


def throttled(program: Program, at: int) -> None:
    """The quota runs out in the middle of the host's work."""
    program.off(at + 500, at + 7500, at + 7490, flags=FORCED | int(OffFlag.THROTTLED))


def preempted(by: Callable[[int], int] = lambda _at: STRANGER) -> Program:
    """Somebody else's process takes the CPU in the middle of the host's work."""

    def between(program: Program, at: int) -> None:
        program.off(at + 500, at + 7500, at + 500, flags=FORCED, queue_cpu=1)
        running = {"pid": by(at), "tid": by(at), "cpu": 1, "duration": 7000 * US}
        program.records.append(items.event(Kind.OCCUPANT, START + (at + 7500) * US, **running))

    program = loop(between)
    program.samples.append(items.process(STRANGER, name="ffmpeg", watched=False))
    return program


def late() -> Program:
    """A wait that sleeps is woken after 4 ms, and gets a CPU 3 ms later."""
    program = started()
    program.samples.append(items.names(START, {MAIN: "python", AUTOGRAD: "pt_autograd_0"}))
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.off(begin + 30, begin + 7000, begin + 4000, op=16, flags=IRQ, queue_cpu=1)
        program.call(SYNC, begin + 20, begin + 7010)
        running = {"pid": STRANGER, "tid": STRANGER, "cpu": 1, "duration": 3000 * US}
        program.records.append(items.event(Kind.OCCUPANT, START + (begin + 7000) * US, **running))
        program.call(LAUNCH, begin + 7020, begin + 7030)
        program.call(SYNC, begin + 7040, begin + STEP_US - 5)
    program.samples.append(items.process(STRANGER, name="ffmpeg", watched=False))
    return program


def inside(*calls: str) -> Program:
    """CUDA calls of 3 ms each between the wait and the next launch."""

    def between(program: Program, at: int) -> None:
        for number, call in enumerate(calls):
            program.call(call, at + 100 + number * 3100, at + 3100 + number * 3100, bytes=8 << 20)

    return loop(between)


def ranks() -> Program:
    """Two processes on two GPUs; the second comes 6 ms late to each collective."""
    program = started()
    program.starts(OTHER)
    for pid, wait in ((MAIN, 0), (OTHER, 6000)):
        program.call("cudaSetDevice", 0, 5, pid=pid, aux=pid // OTHER)
        program.samples.append(items.names(START, {pid: "python", AUTOGRAD + pid: "pt_autograd_0"}, pid=pid))
        for begin in range(10, STEPS * STEP_US, STEP_US):
            program.call(LAUNCH, begin, begin + 10, pid=pid)
            program.call("ncclAllReduce", begin + 100 + wait, begin + 120 + wait, pid=pid, bytes=1 << 20)
            program.call(SYNC, begin + 130 + wait, begin + STEP_US - 20, pid=pid)
    return program


def reduced() -> Program:
    """Four micro-batches a step of the optimizer, each with an all-reduce of which nothing hides the end."""
    program = started()
    program.samples.append(items.names(START, {MAIN: "python", AUTOGRAD: "pt_autograd_0"}, pid=MAIN))
    names = ("gemm", "multi_tensor_apply_kernel<FusedAdam>")
    program.samples += [
        Sample(
            FRAMES,
            START,
            {
                "pid": [MAIN] * 2,
                "stack": [kernel_number(MAIN, number) for number in (1, 2)],
                "frames": [[["/t/libtorch_cuda.so", 0, name]] for name in names],
            },
        ),
        Sample(SHAPES, START, {"shape": [1], "sizes": [[264, 1, 1, 256, 1, 1, 0]]}),
    ]
    length = 4 * STEPS * STEP_US
    for number, begin in enumerate(range(10, length, STEP_US)):
        for part in range(3):
            program.call(LAUNCH, begin + 20 * part, begin + 20 * part + 10, aux=1, run_delay=1)
            at = begin + 100 + 20 * part
            program.call(LAUNCH, at, at + 10, tid=AUTOGRAD, aux=1, run_delay=1)
        program.call("ncclAllReduce", begin + 200, begin + 220, tid=AUTOGRAD, bytes=100 << 20)
        if number % 4 == 3:
            program.call(LAUNCH, begin + 300, begin + 310, aux=2, run_delay=1)
            program.call(SYNC, begin + 320, begin + STEP_US - 100)
    for at in range(100_000, length, 100_000):
        row = {"index": 0, "uuid": "u", "name": "GPU", "multiprocessors": 132}
        seen = {"graphics_active_percent": 100.0, "sm_active_percent": 59.0}
        program.samples.append(Sample(GPUS, START + at * US, {"gpus": [row | seen]}))
    program.length_us = length
    return program


def hot() -> Program:
    """Heat holds the clock at 1200 of 1980 MHz in the second half."""
    program = loop(nothing)
    program.records.clear()
    program.starts(MAIN)
    for begin in range(0, 2_000_000, 10_000):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 9_990)
    for number in range(1, 9):
        held = number > 4
        row = items.gpus(START, 100).data["gpus"][0] | {
            "sm_clock_mhz": 1200 if held else 1980,
            "sm_clock_max_mhz": 1980,
            "clock_event_reasons": 0x40 if held else 0,
        }
        program.samples.append(Sample(GPUS, START + number * 249_000 * US, {"gpus": [row]}))
    return program


def shared() -> Program:
    """Two processes launch on one GPU and wait at the same time."""
    program = started()
    program.starts(OTHER)
    for pid in (MAIN, OTHER):
        program.samples.append(items.names(START, {pid: "python", AUTOGRAD + pid: "pt_autograd_0"}, pid=pid))
        for begin in range(0, STEPS * STEP_US, STEP_US):
            program.call(LAUNCH, begin + pid, begin + pid + 10, pid=pid)
            program.call(SYNC, begin + 100, begin + 11_900, pid=pid)
    return program


def within(program: Program, *files: str) -> Program:
    """Stack ``CODE`` goes through these files of libraries, to a line of the program."""
    rows = [[file, 9, "f"] for file in files] + [["/app/main.py", 12, "main"]]
    program.samples.append(Sample(FRAMES, START, {"pid": [MAIN], "stack": [CODE], "frames": [rows]}))
    return program


def sampled(program: Program, first_us: int, last_us: int, stack: int = CODE) -> None:
    """Each step, every 2 ms from one moment to another, a sample meets a thread at that stack."""
    steps = range(0, STEPS * STEP_US, STEP_US)
    times = [START + (begin + at) * US for begin in steps for at in range(first_us, last_us, 2000)]
    data = {"time": times, "tid": [MAIN] * len(times), "stack": [stack] * len(times)}
    program.samples.append(Sample(PLACES, START + STEPS * STEP_US * US, data))


def started_each_step() -> Program:
    """A process is started for each step, computes for 6 ms and ends."""

    def between(program: Program, at: int) -> None:
        child = 1000 + at // STEP_US
        program.starts(child, at + 600, maker=MAIN)
        program.off(at + 700, at + 7000, op=0, waker_pid=child, waker_tid=child)
        program.ends(at + 6990, child)

    return loop(between)


def loader_each_epoch() -> Program:
    """For each epoch two workers are forked; the first batch comes 7 ms later."""

    def between(program: Program, at: int) -> None:
        first = 1000 + 2 * (at // STEP_US)
        for child in (first, first + 1):
            program.starts(child, at + 300, maker=MAIN)
            program.ends(at + 7700, child)
        program.off(at + 400, at + 7500, op=0, stack=CODE, waker_pid=first, waker_tid=first)
        program.call(COPY_ASYNC, at + 7550, at + 7580, kind=H2D, bytes=4 << 20)

    return within(loop(between), "/lib/python3/site-packages/torch/utils/data/dataloader.py")


def compiled() -> Program:
    """Each batch has another shape, and the model is compiled for it."""
    program = within(loop(nothing), "/lib/python3/site-packages/torch/_inductor/graph.py")
    sampled(program, BUSY_US + 500, STEP_US)
    return program


def host_arrays() -> Program:
    """A kernel of Numba is launched with an array of NumPy: a copy in, the launch, a copy out."""
    program = within(started(), "/lib/python3/site-packages/numba/cuda/args.py")
    program.samples.append(items.names(START, {MAIN: "python"}))
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(COPY, begin, begin + 900, kind=H2D, bytes=4 << 20, stack=CODE)
        program.call(LAUNCH, begin + 1000, begin + 1010)
        program.call(COPY, begin + 1100, begin + 6000, kind=D2H, bytes=4 << 20, stack=CODE)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    return program


def anomalies() -> Program:
    """autograd's thread reads a flag for each of ten gradients."""
    files = ("/usr/lib/python3.11/traceback.py", "/lib/python3/site-packages/torch/fx/traceback.py")
    program = within(started(), *files)
    program.thread(AUTOGRAD)
    program.samples.append(items.names(START, {MAIN: "python", AUTOGRAD: "pt_autograd_0"}))
    for begin in range(0, STEPS * STEP_US, STEP_US):
        for at in range(begin, begin + 10_000, 1000):
            program.call(LAUNCH, at, at + 10, tid=AUTOGRAD)
            program.call(COPY_ASYNC, at + 20, at + 25, kind=D2H, bytes=1, tid=AUTOGRAD)
            program.call(SYNC, at + 30, at + 600, tid=AUTOGRAD)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10, tid=AUTOGRAD)
    sampled(program, 10_500, STEP_US)
    return program


def peer(does: Between, waker: int = WORKER) -> Program:
    """A process of the program prepares the answer that the next launch needs; ``does``: for 7 ms."""

    def waits(program: Program, at: int) -> None:
        program.off(at + 10, at + 7900, op=RECVFROM, waker_pid=waker, waker_tid=waker)
        does(program, at + 500)

    program = loop(waits)
    program.starts(WORKER, maker=MAIN)
    program.samples.append(items.names(START, {WORKER: "tokenizer"}, pid=WORKER))
    return program


def unwatched() -> Program:
    """A process that is not watched answers."""
    program = loop(stays(RECVFROM, waker_pid=STRANGER, waker_tid=STRANGER))
    program.samples.append(items.process(STRANGER, name="features", watched=False))
    return program


def by_turns() -> Program:
    """Two threads of Python take turns: each waits for the GIL while the other computes, 5 ms at a time."""

    def between(program: Program, at: int) -> None:
        late = {"op": FUTEX, "argument": GIL_ADDRESS}
        program.off(at + 10, at + 5_020, flags=IRQ, **late)
        program.off(at + 5_030, at + 7_000, waker_pid=MAIN, waker_tid=HOLDER, **late)
        program.off(at + 7_010, at + 7_900, tid=HOLDER, waker_pid=MAIN, waker_tid=MAIN, **late)

    program = loop(between)
    program.thread(HOLDER)
    program.samples.append(items.names(START, {HOLDER: "logger"}))
    return program


STORIES: dict[str, Callable[[], Program]] = {
    "C01": scalar,
    "C03": lambda: loop(nothing, DEVICE_SYNC),
    "C06": launches,
    "C07": printed,
    "C09": lambda: loader(starved),
    "C10": lambda: loader(stays(PREAD, pid=WORKER)),
    "C11": lambda: loader(stays(FAULT, pid=WORKER)),
    "C13": preempted,
    "C14": lambda: loop(throttled),
    "C15": late,
    "C16": by_turns,
    "C17": lambda: loop(stays(MUNMAP)),
    "C18": lambda: loop(stays(FSYNC)),
    "C19": unwatched,
    "C29": lambda: peer(nothing),
    "C30": lambda: peer(stays(PREAD, pid=WORKER)),
    "C31": lambda: peer(stays(NANOSLEEP, flags=IRQ, pid=WORKER)),
    "C32": lambda: loop(stays(NANOSLEEP, flags=IRQ)),
    "C20": lambda: inside("cudaMalloc", "cudaFree"),
    "C21": lambda: inside("cudaHostAlloc", "cudaFreeHost"),
    "C22": lambda: inside("cudaGraphInstantiate", "cudaLibraryLoadData"),
    "C23": ranks,
    "C47": reduced,
    "C24": hot,
    "C25": shared,
    "C27": moved,
    "C28": collected,
    "C33": loader_each_epoch,
    "C34": compiled,
    "C35": host_arrays,
    "C36": anomalies,
    "C37": started_each_step,
    "C48": queued,
    "C49": late_workers,
    "C50": back_to_back,
}


@cache
def report_of_cause(number: str) -> Report:
    """What ``gputop explain`` says of the program of a cause."""
    return STORIES[number]().report()
