"""T08 to T12a: the launching thread waits for a process that prepares the next batch."""

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
    lines,
    role,
    scenario,
)
from tests.faults.single import made

BATCH = 1 << 16  # a pipe holds one: the producer is one batch ahead


def _loader(
    draw: Draw, work: str, ms: float, *, cpu: int = 0, queue: str = "C09", more: str = ""
) -> tuple[str, int]:
    """A producer of batches, the main thread that waits for them, and the number of steps."""
    draw.how(streams=False)
    kernel, steps = draw.kernel(ms * 0.7, most=max(ms * 0.6, 1))
    step = lines(
        f"@loader|C12 recv 0 {BATCH}", f"- h2d 0 {BATCH} pin", f"- launch 0 {kernel} 1", "C15 sync 0"
    )
    main = role("main", cpu=1 - cpu) + lines(WARM, (steps, step))
    batches = lines((steps, lines(work, f"C08 send 0 {BATCH}")))
    return main + role("loader", "process", queue, cpu) + batches + more, steps


@scenario("T08")
def loader_works(draw: Draw) -> Scenario:
    """The loader computes on a CPU of its own."""
    ms = draw.near("batch_ms", 30)
    script, steps = _loader(draw, f"C08 burn {int(ms * MS)}", ms)
    return made("T08", "loader computes", draw, script, steps, Expected("C08", PROVED))


@scenario("T09")
def loader_starves(draw: Draw) -> Scenario:
    """The same with three hogs on the loader's CPU."""
    ms = draw.near("batch_ms", 10)
    hogs = "".join(role(f"hog{i}", "process", "-", 0) + lines((0, "- burn 5000000\n")) for i in range(3))
    script, steps = _loader(draw, f"C08 burn {int(ms * MS)}", ms * 4, more=hogs)
    return made("T09", "loader starved by hogs", draw, script, steps, Expected("C09", PROVED), language="c")


@scenario("T10")
def loader_reads(draw: Draw) -> Scenario:
    """The loader reads from the disk past the page cache.

    The machine has no device mapper and its I/O controller lets five requests through at once, so the
    delay is not made by either: it is a real read of many MiB, timed by the reader.
    """
    mib = int(draw.near("mib", 24))
    script, steps = _loader(draw, f"C10~C08 read {mib << 20}", mib * 0.7)
    return made("T10", "loader reads the disk", draw, script, steps, Expected("C10", PROVED), language="c")


@scenario("T11min")
def fresh_pages(draw: Draw) -> Scenario:
    """The loader touches fresh pages."""
    mib = int(draw.near("mib", 48))
    script, steps = _loader(draw, f"C11 touch {mib << 20}", mib * 0.35)
    expected = Expected("C11", STRONG, bound="between")
    return made("T11min", "loader touches fresh pages", draw, script, steps, expected, language="c")


@scenario("T11maj")
def evicted_pages(draw: Draw) -> Scenario:
    """The loader touches a mapped file that is not in the page cache."""
    pages = int(draw.near("pages", 200))
    script, steps = _loader(draw, f"C11~C08 fault {pages}", pages * 0.09)
    expected, more = Expected("C11", PROVED), {"language": "c", "switches": pages, "tolerance": 0.1}
    return made("T11maj", "loader faults a file in", draw, script, steps, expected, **more)


@scenario("T12a")
def objects(draw: Draw) -> Scenario:
    """A producer sends many small Python objects; the launching thread unpickles them."""
    draw.how(streams=False)
    count = int(draw.near("objects", 30_000))
    kernel, steps = draw.kernel(count / 1800, most=10)
    step = lines(
        "C08~C12 recvobj 0", "C12 unpickle", f"- h2d 0 {1 << 20} pin", f"- launch 0 {kernel} 1", "C15 sync 0"
    )
    script = role("main") + lines(WARM, (steps, step))
    script += role("loader", "process", "C09", 0) + lines((steps, f"C08 sendobj 0 {count}\n"))
    return made(
        "T12a", "unpickling on the launcher", draw, script, steps, Expected("C12", EITHER), language="python"
    )
