"""Frames and a feed made by hand: what the screen is tested and looked at with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gputop.engine.frame import CallRow, Frame, GpuRow, Lost, ProcessRow, Share, Storm, ThreadRow
from gputop.engine.host_figures import HostRow
from gputop.playback.bookmarks import Landmark, Landmarks
from gputop.playback.feed import Explained, RecorderControls, RecordingState, Transport
from gputop.playback.rewind import Rewind
from probes.source import Sample

S = 1_000_000_000
WALL = 1_764_770_551_250_000_000
APIS = (
    ("cudaLaunchKernel", "runtime"),
    ("cudaMemcpyAsync", "runtime"),
    ("cudaStreamSynchronize", "runtime"),
    ("cuLaunchKernel", "driver"),
    ("cudaMalloc", "runtime"),
    ("ncclAllReduce", "nccl"),
    ("cudaEventRecord", "runtime"),
    ("cuMemcpyHtoDAsync_v2", "driver"),
    ("cudaFree", "runtime"),
    ("cudaEventSynchronize", "runtime"),
)


def wobble(seed: int, low: int, high: int) -> int:
    """A number that looks random and is the same every time."""
    mixed = (seed * 2_654_435_761 + 12_345) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    mixed = (mixed * 2_246_822_519) & 0xFFFFFFFF
    mixed ^= mixed >> 13
    return low + mixed % max(high - low, 1)


def histogram(seed: int, first: int, spread: int) -> tuple[int, ...]:
    """Counts with two humps between buckets ``first`` and ``first + spread``."""
    counts = [0] * 40
    for offset in range(spread):
        counts[first + offset] = wobble(seed + offset, 0, 1000 if offset in (1, spread - 2) else 250)
    return tuple(counts)


def call(index: int, tick: int = 0, **changes: object) -> CallRow:
    """The calls of the API with this number."""
    api, layer = APIS[index % len(APIS)]
    seed = index * 977 + tick * 31
    p50 = wobble(seed, 2_000, 90_000) * (1 + index)
    row = CallRow(
        api=api,
        layer=layer,
        nested=layer == "driver",
        count=wobble(seed + 1, 20, 8_000),
        errors=0,
        bytes=wobble(seed + 2, 0, 1 << 30) if "Memcpy" in api else 0,
        sum_ns=wobble(seed + 3, S // 100, S // 2),
        p50_ns=p50,
        p95_ns=p50 * 8,
        p99_ns=p50 * 40,
        max_ns=p50 * 90,
        histogram=histogram(seed, 10 + index % 4, 12 + index % 3),
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def thread(pid: int, index: int, tick: int = 0, **changes: object) -> ThreadRow:
    """A thread of a process."""
    seed = pid * 131 + index * 17 + tick
    on_cpu, runnable = wobble(seed, 0, S // 2), wobble(seed + 1, 0, S // 4)
    row = ThreadRow(
        tid=pid + index,
        name="python" if index == 0 else f"pt_data_{index}",
        voluntary_switches=wobble(seed + 2, 0, 900),
        involuntary_switches=wobble(seed + 3, 0, 400),
        on_cpu_ns=on_cpu,
        runnable_ns=runnable,
        blocked_ns=S - on_cpu - runnable,
        state=("running", "runnable", "blocked")[wobble(seed + 4, 0, 3)],
        cuda=index == 0,
        preempted_by=(
            Share(9001, 9001, "stress-ng", runnable * 6 // 10, 0.6),
            Share(77, 77, "kcompactd0", runnable // 5, 0.2),
        ),
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def process(index: int, tick: int = 0, *, threads: int = 8, calls: int = 7, **changes: object) -> ProcessRow:
    """A watched process."""
    pid = 4242 + index * 7
    seed = index * 7_919 + tick * 13
    names = ("python", "python3.11", "train_ddp", "triton_server", "nccl-tests")
    row = ProcessRow(
        pid=pid,
        parent_pid=1,
        name=names[index % len(names)],
        command=f"python train.py --rank {index} --epochs 90",
        user="alice",
        start_ns=S,
        exited_ns=None,
        gpus=(index % 8,),
        gpu_memory_bytes=wobble(seed, 1, 70) << 30,
        calls_per_second=wobble(seed + 1, 0, 30_000),
        top_api=APIS[index % 3][0],
        top_api_ns_per_second=wobble(seed + 2, 0, S),
        top_api_p99_ns=wobble(seed + 3, 5_000, 80_000_000),
        voluntary_per_second=wobble(seed + 4, 0, 4_000),
        involuntary_per_second=wobble(seed + 5, 0, 490),
        runnable_percent=wobble(seed + 6, 0, 190) / 10,
        blocked_percent=wobble(seed + 7, 0, 100),
        on_cpu_percent=wobble(seed + 8, 0, 380),
        calls=tuple(call(i, tick) for i in range(calls)),
        threads=tuple(thread(pid, i, tick) for i in range(threads)),
        sm_percent=wobble(seed + 9, 0, 100),
        memory_percent=wobble(seed + 10, 0, 60),
        rss_bytes=wobble(seed + 11, 100, 9_000) << 20,
        run_ns=(3_600 * index + wobble(seed + 12, 60, 3_000) * (index + 1)) * S,
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def gpu(index: int, tick: int = 0, **changes: object) -> GpuRow:
    """A GPU at work."""
    seed = index * 101 + tick
    history = tuple(wobble(index * 1_009 + (tick - 239 + i) // 2, 10, 101) for i in range(240))
    row = GpuRow(
        index=index,
        uuid=f"GPU-5f0c{index:04d}",
        name="NVIDIA H100 80GB HBM3",
        utilization_percent=history[-1],
        memory_utilization_percent=wobble(seed + 1, 0, 100),
        memory_used_bytes=wobble(seed + 2, 10, 80) << 30,
        memory_total_bytes=80 << 30,
        power_milliwatts=wobble(seed + 3, 90_000, 700_000),
        power_limit_milliwatts=700_000,
        temperature_celsius=wobble(seed + 4, 30, 80),
        fan_percent=None,
        sm_clock_mhz=wobble(seed + 5, 1_200, 1_980),
        memory_clock_mhz=2_619,
        pcie_tx_bytes_per_second=1 << 30,
        pcie_rx_bytes_per_second=1 << 29,
        unavailable=(("fan_percent", "this GPU has no fan"),),
        utilization_history=history,
        age_ns=80_000_000,
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def host(tick: int = 0) -> HostRow:
    """A machine of eight CPUs."""
    cores = tuple(float(wobble(tick + i, 0, 101)) for i in range(8))
    return HostRow(
        cpu_model="AMD EPYC 9654",
        cpu_mhz=3_700,
        cpu_temperature_celsius=61,
        processes=412,
        threads=1_730,
        cpu_percent=sum(cores) / 8,
        cores_percent=cores,
        load=(6.4, 5.9, 4.1),
        memory_total_bytes=256 << 30,
        memory_available_bytes=191 << 30,
        memory_free_bytes=131 << 30,
        memory_cached_bytes=48 << 30,
        swap_total_bytes=8 << 30,
        swap_free_bytes=8 << 30,
        pressure_cpu_percent=12.0,
        pressure_memory_percent=0.0,
        pressure_io_percent=1.5,
        disk_read_bytes_per_second=310 << 20,
        disk_write_bytes_per_second=4 << 20,
        disk_busy_percent=37.5,
        received_bytes_per_second=12 << 20,
        sent_bytes_per_second=1 << 20,
        received_bytes=900 << 30,
        sent_bytes=21 << 30,
        uptime_s=183_000,
        name="gpu-box",
    )


def frame(
    tick: int = 0,
    *,
    processes: int = 4,
    gpus: int = 2,
    threads: int = 8,
    calls: int = 7,
    storm: bool = True,
    **changes: object,
) -> Frame:
    """A frame of a machine at work; the first process is in a storm."""
    rows = [process(i, tick, threads=threads, calls=calls) for i in range(processes)]
    storms: tuple[Storm, ...] = ()
    if storm and rows:
        rows[0] = replace(rows[0], involuntary_per_second=3_900.0 + tick % 50, runnable_percent=61.0)
        occupants = (Share(9001, 9001, "stress-ng", S, 0.61), Share(4249, 4249, "python", S // 3, 0.22))
        storms = (Storm(rows[0].pid, rows[0].name, rows[0].involuntary_per_second, 61.0, occupants),)
    made = Frame(
        number=tick,
        time_ns=100 * S + tick * S // 4,
        wall_ns=WALL + tick * S // 4,
        start_ns=S,
        window_ns=S,
        utc_offset_s=7_200,
        rate_hz=4.0,
        lost=Lost(0),
        own_cpu_percent=0.9,
        own_rss_bytes=61 << 20,
        events_per_second=12_345.0 + tick,
        calls_per_second=8_100.0 + tick,
        gpus=tuple(gpu(i, tick) for i in range(gpus)),
        processes=tuple(rows),
        storms=storms,
        problems=(),
        notes=("attached 272 probes to libcudart.so.12",),
        host=host(tick),
        driver="550.54.15",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@dataclass
class FakeTransport:
    """Time controls of a recording that remember what was asked of them."""

    live = False
    playing: bool = True
    speed: float = 1.0
    position_ns: int = 432 * S
    start_ns: int = 0
    end_ns: int = 600 * S
    found: list[Landmark] = field(default_factory=list)

    def toggle(self) -> None:
        """Play or pause."""
        self.playing = not self.playing

    def step(self, marks: int) -> None:
        """Go by marks."""
        self.playing = False
        self.position_ns += marks * S // 4

    def seek(self, time_ns: int) -> None:
        """Go to an instant."""
        self.position_ns = time_ns

    def set_speed(self, speed: float) -> None:
        """Take a speed."""
        self.speed = speed

    def go_live(self) -> None:
        """Go to the end."""
        self.position_ns = self.end_ns

    def landmarks(self) -> tuple[Landmark, ...]:
        """What was put there."""
        return tuple(sorted(self.found))

    def mark(self, text: str, at_ns: int | None = None) -> None:
        """Mark the position, or another moment."""
        self.found.append(Landmark(self.position_ns if at_ns is None else at_ns, "marker", text))


class FakeFeed:
    """A feed whose newest frame is whatever was put into it."""

    def __init__(self, newest: Frame | None = None, transport: FakeTransport | None = None) -> None:
        """Start with a frame.

        Args:
            newest: The frame ``latest`` returns.
            transport: The time controls of a recording; without them the feed is live.
        """
        self.newest = newest
        self.why = Explained()
        self.marked: list[Sample] = []
        self.recorder: RecorderControls | None = None
        self._rewind = Rewind(
            None,
            lambda: self.newest,
            lambda: self.why,
            landmarks=Landmarks(),
            marked=self.marked.append,
        )
        self.transport: Transport = transport or self._rewind
        self.failed: str | None = None
        self.state: RecordingState | None = None
        self.output: list[str] = []
        self.ended = ""

    def latest(self) -> Frame | None:
        """The newest frame, or the one held."""
        return self._rewind.latest()

    def present(self) -> tuple[Frame, Explained] | None:
        """The newest frame, also while time is held; None for a recording."""
        live = self.newest is not None and self.transport is self._rewind
        return (self.newest, self.why) if live and self.newest is not None else None

    def explained(self) -> Explained:
        """The explanation."""
        return self._rewind.explained()

    def failure(self) -> str | None:
        """What went wrong."""
        return self.failed

    def recording(self) -> RecordingState | None:
        """The recording."""
        return self.state

    def outcome(self) -> str:
        """How the command has ended."""
        return self.ended

    def log_lines(self, after: int) -> tuple[int, list[str]]:
        """Output since ``after``."""
        return len(self.output), self.output[after:]
