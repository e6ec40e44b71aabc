"""T13 to T19: the launching thread is kept from launching by the machine or by other threads."""

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
from tests.faults.single import made


def hogs(count: int, cpu: int = 1, kind: str = "process") -> str:
    """Roles that take a CPU."""
    return "".join(role(f"hog{i}", kind, "-", cpu) + lines((0, "- burn 5000000\n")) for i in range(count))


@scenario("T13")
def preempted(draw: Draw) -> Scenario:
    """Hogs on the launching thread's CPU, and little work between its steps."""
    draw.how(streams=False, blocking=False)
    host = draw.near("host_ms", 6)
    kernel, steps = draw.kernel(host * 4, most=1)
    step = lines(f"- launch 0 {kernel} 1", "C15 sync 0", f"C28 burn {int(host * MS)}")
    script = role("main") + lines(WARM, (steps, step)) + hogs(3)
    return made("T13", "launcher preempted", draw, script, steps, Expected("C13", PROVED))


def _quota(draw: Draw, name: str, title: str, outside: str) -> Scenario:
    draw.how(streams=False, blocking=True)
    host = draw.near("host_ms", 6)
    kernel, steps = draw.kernel(host * 2, most=1)
    steps = max(steps, 80)
    step = lines(f"- launch 0 {kernel} 1", "C15 sync 0", f"C28 burn {int(host * MS)}")
    script = role("main", queue="C14") + lines(WARM, (steps, step))
    quota = draw.near("quota", 0.3, 0.15)
    more = {"quota": quota, "outside": outside, "language": "c", "attached": False}
    if outside:
        # the program's clock cannot tell the quota from the hog; the kernel's count includes throttling while
        # the GPU was busy, so it is only an upper bound
        more["tolerance"] = 0.2
    return made(name, title, draw, script, steps, Expected("C14", EITHER), **more)


@scenario("T14")
def throttled(draw: Draw) -> Scenario:
    """A CPU quota of 30 %."""
    return _quota(draw, "T14", "CPU quota", "")


@scenario("T14b")
def throttled_beside(draw: Draw) -> Scenario:
    """The same, with a hog of another group on the same CPU."""
    return _quota(
        draw, "T14b", "CPU quota beside a hog", role("hog", queue="-") + lines((0, "- burn 5000000\n"))
    )


def _late_return(draw: Draw, name: str, title: str, *, blocking: bool) -> Scenario:
    draw.how(streams=False, blocking=blocking)
    kernel, steps = draw.kernel(8, least=3, most=15)
    step = lines(f"- launch 0 {kernel} 1", "C15 sync 0", "C03 burn 200000")
    script = role("main", nice=3) + lines(WARM, (steps, step)) + hogs(2)
    expected = Expected("C15", EITHER, bound="between" if blocking else "none")
    # the simulated driver wakes its waiters by a timer, which is late by itself
    return made(name, title, draw, script, steps, expected, tolerance=0.2)


@scenario("T15")
def late_return(draw: Draw) -> Scenario:
    """A blocking wait whose thread does not get its CPU when the GPU is ready."""
    return _late_return(draw, "T15", "late return, blocking", blocking=True)


@scenario("T15s")
def late_return_spinning(draw: Draw) -> Scenario:
    """The spinning twin: nothing of it is certain."""
    return _late_return(draw, "T15s", "late return, spinning", blocking=False)


@scenario("T16")
def held(draw: Draw) -> Scenario:
    """Another thread holds the GIL (Python) or a mutex (C) when the launching thread comes back."""
    draw.how(streams=False)
    hold = draw.near("hold_ms", 8)
    kernel, steps = draw.kernel(hold, least=1, most=6)
    language = draw.language()
    wait = "@holder|C15"
    if language == "python":
        step = lines(f"@holder|- launch 0 {kernel} 1", f"{wait} sync 0", "@holder|C03 burn 300000")
        holding = lines((0, lines(f"C16 hold {int(hold * MS)}", "- sleep 1000000")))
    else:
        step = lines(
            f"- launch 0 {kernel} 1", "C15 sync 0", "@holder|C16 lock 0", "C03 burn 300000", "- unlock 0"
        )
        # back before the other lets go: who waits for it in turn tells a lock from a condition
        holding = lines((0, lines("- lock 0", f"C16 hold {int(hold * MS)}", "- unlock 0", "- sleep 100000")))
    script = (
        role("main", queue="@holder|C13")
        + lines(WARM, (steps, step))
        + role("holder", "thread", "C13", 0)
        + holding
    )
    # the GIL is lost between a launch and its wait as well: then nobody proves when the GPU was done
    expected = Expected("C16", STRONG, bound="between" if language == "python" else "proved")
    return made("T16", "a lock held elsewhere", draw, script, steps, expected, language=language)


@scenario("T17")
def address_space(draw: Draw) -> Scenario:
    """Another thread keeps the address space's lock while the launching thread maps memory."""
    draw.how(streams=False)
    kernel, steps = draw.kernel(16, most=6)
    mib = int(draw.near("mib", 64))
    step = lines(f"- launch 0 {kernel} 1", "C15 sync 0", f"C17~C03 map {1 << 20}", "C03 burn 100000")
    storm = lines((0, lines(f"- populate {mib << 20}", "- sleep 500000")))
    script = role("main") + lines(WARM, (steps, step)) + role("mapper", "thread", "-", 0) + storm
    return made("T17", "mmap lock", draw, script, steps, Expected("C17", PROVED), language="c")


@scenario("T17f")
def own_faults(draw: Draw) -> Scenario:
    """The launching thread touches a mapped file that is not in the page cache."""
    draw.how()
    pages = int(draw.near("pages", 150))
    kernel, steps = draw.kernel(pages * 0.09)
    step = lines(launches(draw, kernel), "C15 sync 0", f"C17~C03 fault {pages}")
    script = role("main") + lines(WARM, (steps, step))
    expected, more = Expected("C17", PROVED), {"language": "c", "switches": pages, "tolerance": 0.1}
    return made("T17f", "major faults on the launcher", draw, script, steps, expected, **more)


@scenario("T18")
def checkpoint(draw: Draw) -> Scenario:
    """The launching thread writes a file and waits until it is on the disk."""
    draw.how()
    ms = draw.near("write_ms", 14)
    kernel, steps = draw.kernel(ms)
    write = f"write {int(ms * MS)}"
    step = lines(launches(draw, kernel), "C15 sync 0", f"C18~C03 {write}")
    script = role("main") + lines(f"- {write}", WARM, (steps, step))
    expected = Expected("C18", PROVED, within="C03")
    return made("T18", "fsync on the launcher", draw, script, steps, expected, language="c")


@scenario("T19")
def server(draw: Draw) -> Scenario:
    """The launching thread asks a server and waits for its answer."""
    draw.how()
    ms = draw.near("server_ms", 25)
    kernel, steps = draw.kernel(ms)
    step = lines(launches(draw, kernel), "C15 sync 0", "C19 net PORT")
    script = role("main") + lines(WARM, (steps, step))
    return made("T19", "waiting for a server", draw, script, steps, Expected("C19", PROVED), server_ms=ms)


@scenario("T23")
def straggler(draw: Draw) -> Scenario:
    """Two ranks; one comes late to each collective, its own GPU busy meanwhile: only the other waits."""
    draw.how(streams=False)
    late = int(draw.near("late_ms", 15) * MS)
    steps = int(900 * MS / late)
    own = lines("- launch 0 100000 1", "- allreduce 0 1000", "- sync 0")
    other = lines(f"- launch 0 {late} 1", f"- burn {late}", "- allreduce 0 1000", "- sync 0")
    script = role("main") + lines(WARM, "- allreduce 0 1", "- sync 0", (steps, own))
    script += role("late", "rank", "-", 0) + lines("- allreduce 0 1", "- sync 0", (steps, other))
    expected = Expected("C23", PROVED, kind="waste")
    more = {"language": "python", "attached": False, "ranks": 2, "compare": False}
    return made("T23", "one rank comes late", draw, script, steps, expected, **more)
