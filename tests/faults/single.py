"""T01 to T07, T12b, T20 to T22, T24: what the launching thread does by itself."""

from __future__ import annotations

from tests.faults.scenario import (
    EITHER,
    MS,
    PROVED,
    STRONG,
    WARM,
    Draw,
    Expected,
    Scenario,
    launches,
    lines,
    role,
    scenario,
)


def made(
    name: str, title: str, draw: Draw, script: str, steps: int, *expected: Expected, **more: object
) -> Scenario:
    """A scenario with what all of them draw."""
    given: dict[str, object] = {"language": draw.language(), "attached": draw.attached()} | more
    return Scenario(
        name,
        title,
        script,
        expected,
        steps,
        streams=draw.streams,
        blocking=draw.blocking,
        parameters=" ".join(draw.said),
        **given,  # type: ignore[arg-type]
    )


@scenario("T01")
def scalar(draw: Draw) -> Scenario:
    """A 4-byte read with its sync, then Python."""
    draw.how()
    host = draw.near("host_ms", 3)
    kernel, steps = draw.kernel(host, least=host / 3)  # of a shorter wait the work is reported: T28
    step = lines(launches(draw, kernel), "C15 d2h 0 4 page", "C15 sync 0", f"C01 burn {int(host * MS)}")
    script = role("main") + lines(WARM, (steps, step))
    return made("T01", "scalar read each step", draw, script, steps, Expected("C01", PROVED))


def _tensor(draw: Draw, name: str, back: str) -> Scenario:
    draw.how()
    host, size = draw.near("host_ms", 20), int(draw.near("mib", 8)) << 20
    kernel, steps = draw.kernel(host + 2)
    step = lines(
        launches(draw, kernel), f"C15 d2h 0 {size} page", "C15 sync 0", f"C02 burn {int(host * MS)}", back
    )
    script = role("main") + lines(WARM, (steps, step))
    title = "tensor read, NumPy" + (", and back" if back else "")
    return made(name, title, draw, script, steps, Expected("C02", PROVED))


@scenario("T02")
def tensor(draw: Draw) -> Scenario:
    """8 MiB read, then NumPy on the host."""
    return _tensor(draw, "T02", "")


@scenario("T02b")
def round_trip(draw: Draw) -> Scenario:
    """The same, and the result goes back."""
    return _tensor(draw, "T02b", f"- h2d 0 {1 << 20} page")


@scenario("T03")
def device_sync(draw: Draw) -> Scenario:
    """cudaDeviceSynchronize each step, then host work."""
    draw.how()
    host = draw.near("host_ms", 5)
    kernel, steps = draw.kernel(host, least=host / 3)
    step = lines(launches(draw, kernel), "C15 devsync", f"C03 burn {int(host * MS)}")
    script = role("main") + lines(WARM, (steps, step))
    return made("T03", "device sync each step", draw, script, steps, Expected("C03", PROVED))


@scenario("T28")
def other_work(draw: Draw) -> Scenario:
    """A short wait, then long work that gives the GPU nothing: a garbage collection, a log."""
    draw.how()
    host = draw.near("host_ms", 12)
    kernel, steps = draw.kernel(host, most=1.5)
    wait = draw.random.choice(["d2h 0 4 page\nC15 sync 0", "devsync"])
    step = lines(launches(draw, kernel), f"C15 {wait}", f"C28 burn {int(host * MS)}")
    script = role("main") + lines(WARM, (steps, step))
    return made("T28", "other work after a short wait", draw, script, steps, Expected("C28", PROVED))


def _staging(draw: Draw, name: str, kind: str, *expected: Expected) -> Scenario:
    draw.streams = "n"
    draw.how(streams=False)
    size = int(draw.near("mib", 40)) << 20
    kernel, steps = draw.kernel(15, least=2)
    step = lines(f"C04 h2d 0 {size} {kind}", f"- launch 0 {kernel} 1")
    script = role("main") + lines(WARM, (steps, step), "- sync 0")
    return made(name, f"{kind} copies to the device", draw, script, steps, *expected)


@scenario("T04")
def pageable(draw: Draw) -> Scenario:
    """64 MiB from pageable memory each step: the truth is the staging, in which the device is idle."""
    return _staging(draw, "T04", "page", Expected("C04", STRONG, kind="waste", bound="between"))


@scenario("T04r")
def registered(draw: Draw) -> Scenario:
    """The same from pinned memory: nothing to say."""
    return _staging(draw, "T04r", "pin")


@scenario("T05")
def tiny_copies(draw: Draw) -> Scenario:
    """200 copies of 4 KiB with work between them, as .to(device) makes them."""
    draw.how(streams=False)
    between = int(draw.near("between_us", 50) * 1000)
    kernel, steps = draw.kernel(16)
    one = lines("- h2d 0 4096 page", "- sync 0", f"C05 burn {between}")
    script = role("main") + lines(WARM, (steps, lines((200, one), f"- launch 0 {kernel} 1", "C15 sync 0")))
    return made("T05", "200 tiny copies a step", draw, script, steps, Expected("C05", PROVED), language="c")


@scenario("T06")
def launch_bound(draw: Draw) -> Scenario:
    """1000 launches of 2 us kernels, 10 us of host time each; proofs are rare."""
    draw.how(streams=False, blocking=False)
    host = int(draw.near("host_us", 5) * 1000)
    one = lines("C06 launch 0 2000 1", f"C06 burn {host}")
    script = role("main") + lines(WARM, (50, lines((1000, one), "- sync 0")))
    expected = Expected("C06", STRONG, bound="between")
    return made("T06", "launch-bound", draw, script, 50, expected, language="c", attached=False)


@scenario("T07")
def printing(draw: Draw) -> Scenario:
    """A burst of 500 one-byte reads once in 10 steps."""
    draw.how(streams=False, blocking=False)
    host = int(draw.near("host_us", 25) * 1000)
    kernel, steps = draw.kernel(2, least=1, most=20)
    bursts = max(steps // 10, 4)
    one = lines("- d2h 0 1 page", "- sync 0", f"C07 burn {host}")
    ten = lines((10, f"- launch 0 {kernel} 1\n"), "C15 sync 0", (500, one))
    script = role("main") + lines(WARM, (bursts, ten))
    return made("T07", "printing a tensor", draw, script, bursts * 10, Expected("C07", PROVED), language="c")


@scenario("T12b")
def collate(draw: Draw) -> Scenario:
    """Batches are made on the launching thread, then copied."""
    draw.how()
    host, size = draw.near("host_ms", 20), int(draw.near("mib", 4)) << 20
    kernel, steps = draw.kernel(host)
    step = lines(f"- h2d 0 {size} pin", launches(draw, kernel), "C15 sync 0", f"C12 burn {int(host * MS)}")
    script = role("main") + lines(WARM, (steps, step))
    return made("T12b", "collating on the launcher", draw, script, steps, Expected("C12", EITHER))


def _in_gap(draw: Draw, name: str, title: str, cause: str, work: str, ms: float, **more: object) -> Scenario:
    draw.how()
    kernel, steps = draw.kernel(ms)
    step = lines(launches(draw, kernel), "C15 sync 0", f"{cause} {work}")
    script = role("main") + lines(f"- {work}", WARM, (steps, step))
    return made(name, title, draw, script, steps, Expected(cause, EITHER), **more)


@scenario("T20")
def allocator(draw: Draw) -> Scenario:
    """cudaMalloc and cudaFree each step."""
    ms = draw.near("ms", 4)
    env = {"SIMGPU_MALLOC_NS": str(int(ms * MS / 2)), "SIMGPU_FREE_NS": str(int(ms * MS / 2))}
    return _in_gap(draw, "T20", "allocator churn", "C20", f"malloc {8 << 20}", ms, env=env)


@scenario("T21")
def pinned_allocator(draw: Draw) -> Scenario:
    """cudaHostAlloc and cudaFreeHost each step."""
    ms = draw.near("ms", 6)
    env = {"SIMGPU_HOST_ALLOC_NS": str(int(ms * MS))}
    return _in_gap(draw, "T21", "pinned allocator churn", "C21", f"hostalloc {8 << 20}", ms, env=env)


def _graphs(draw: Draw, name: str, title: str, work: str) -> Scenario:
    ms = draw.near("ms", 12)
    env = {"SIMGPU_GRAPH_INSTANTIATE_NS": str(int(ms * MS))}
    return _in_gap(draw, name, title, "C22", work, ms, env=env, language="c")


@scenario("T22")
def graphs(draw: Draw) -> Scenario:
    """A graph is instantiated each step."""
    return _graphs(draw, "T22", "graph instantiated again", "graph 0")


@scenario("T22b")
def captures(draw: Draw) -> Scenario:
    """And captured before: what is launched into a capture is no work for the GPU."""
    return _graphs(draw, "T22b", "graph captured again", "recapture 0")


@scenario("T24")
def throttled_clock(draw: Draw) -> Scenario:
    """NVML reports that heat holds the clock down from a moment on; kernels then take longer.

    The truth is how much longer the kernels took. It is as exact as NVML is sampled: four times a second.
    """
    draw.how(streams=False)
    kernel = int(draw.near("kernel_ms", 12, 0.4) * MS)
    script = role("main") + lines(WARM, (400, lines(f"- launch 0 {kernel} 1", "C15 sync 0")), "- sync 0")
    expected = Expected("C24", STRONG, kind="waste", bound="between")
    more = {"throttle_mhz": int(draw.near("mhz", 1000, 0.2)), "nominal_ns": kernel, "tolerance": 0.35}
    return made("T24", "clock held down", draw, script, 150, expected, language="c", attached=False, **more)
