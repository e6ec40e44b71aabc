"""N1 to N6: programs of which nothing must be reported; and the smallest loss that must be found."""

from __future__ import annotations

from tests.faults.scenario import MS, PROVED, WARM, Draw, Expected, Scenario, lines, role, scenario
from tests.faults.single import made


def healthy(draw: Draw, ms: float = 900.0) -> tuple[str, int]:
    """Three launches a step, the queue never empty: each step waits for the one before the last."""
    draw.how(streams=False, blocking=draw.random.random() < 0.5)
    kernel = int(draw.near("kernel_ms", 2.5, 0.5) * MS)
    rounds = max(int(ms * MS / (9 * kernel)), 7)
    step = "".join(
        f"- evsync {event}\n" + "- h2d 0 65536 pin\n" + f"- launch 0 {kernel} 3\n- record 0 {event}\n"
        for event in range(3)
    )
    return lines((rounds, step)), rounds * 3


@scenario("N1")
def asynchronous(draw: Draw) -> Scenario:
    """Always at least two steps ahead of the GPU."""
    script, steps = healthy(draw)
    return made("N1", "healthy, asynchronous", draw, role("main") + lines(WARM, script, "- sync 0"), steps)


@scenario("N2")
def computing(draw: Draw) -> Scenario:
    """A sync each step, but the kernel takes nearly all of it."""
    draw.how(blocking=False)
    kernel = int(draw.near("kernel_ms", 45, 0.1) * MS)
    launch = "".join(
        f"- launch {stream} {kernel} 1\n- sync {stream}\n" for stream in range(len(draw.streams))
    )
    script = role("main") + lines(WARM, (24 // len(draw.streams), lines(launch, "C03 burn 200000")))
    return made("N2", "compute-bound, spinning", draw, script, 24)


def _beside(draw: Draw, name: str, title: str, outside: str) -> Scenario:
    script, steps = healthy(draw)
    return made(name, title, draw, role("main") + lines(WARM, script, "- sync 0"), steps, outside=outside)


@scenario("N3")
def switches(draw: Draw) -> Scenario:
    """A storm of context switches of strangers on the other CPU."""
    outside = role("ping", cpu=0) + lines((0, lines("- send 0 1", "- recv 1 1")))
    outside += role("pong", "process", cpu=0) + lines((0, lines("- recv 0 1", "- send 1 1")))
    return _beside(draw, "N3", "switch storm elsewhere", outside)


@scenario("N4")
def allocations(draw: Draw) -> Scenario:
    """Strangers allocate and free memory all the time."""
    return _beside(
        draw, "N4", "page storm elsewhere", role("pages", cpu=0) + lines((0, f"- touch {32 << 20}"))
    )


@scenario("N5")
def one_pause(draw: Draw) -> Scenario:
    """One pause of 300 ms, as of a garbage collector, and healthy before and after: an event."""
    before, steps = healthy(draw, 400)
    pause = int(draw.near("pause_ms", 300) * MS)
    script = role("main") + lines(WARM, before, "- sync 0", f"C03 burn {pause}", before, "- sync 0")
    return made("N5", "one long pause", draw, script, 2 * steps, events=1)


@scenario("N6")
def waiting_workers(draw: Draw) -> Scenario:
    """Workers that wait for work with timeouts, as DataLoader's do."""
    script, steps = healthy(draw)
    workers = "".join(
        role(f"worker{i}", "process", "-", 0) + lines((0, f"- poll {i} 5000\n")) for i in range(3)
    )
    workers += role("pin", "thread", "-", 0) + lines((0, "- poll 4 200\n"))
    return made(
        "N6",
        "idle workers",
        draw,
        role("main") + lines(WARM, script, "- sync 0") + workers,
        steps,
        language="c",
    )


@scenario("S3")
def small_loss(draw: Draw) -> Scenario:
    """A loss of 3 % of the span must be found."""
    draw.how(streams=False)
    kernel = int(draw.near("kernel_ms", 20, 0.2) * MS)
    host = int(0.034 * kernel)
    step = lines(f"- launch 0 {kernel} 1", "C15 d2h 0 4 page", "C15 sync 0", f"C01 burn {host}")
    steps = int(1200 * MS / kernel)
    script = role("main") + lines(WARM, (steps, step))
    return made("S3", "3 % of the span", draw, script, steps, Expected("C01", PROVED), language="c")
