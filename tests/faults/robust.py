"""R2 to R9: programs and circumstances in which much cannot be known; nothing false may be called proved.

Their scenarios expect no cause: what is said is only held to the truth. R1 damages recordings, see damage.py.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.scenario import MS, WARM, Draw, Scenario, lines, role

ROBUST: dict[str, Callable[[Draw], Scenario]] = {}


def _robust(name: str) -> Callable[[Callable[[Draw], Scenario]], Callable[[Draw], Scenario]]:
    def register(make: Callable[[Draw], Scenario]) -> Callable[[Draw], Scenario]:
        ROBUST[name] = make
        return make

    return register


def _made(name: str, title: str, draw: Draw, script: str, **more: object) -> Scenario:
    how = draw.random.random() < 0.5
    return Scenario(name, title, script, (), 100, blocking=how, parameters=f"blocking={how}", **more)  # type: ignore[arg-type]


def _steps(draw: Draw, work: str, count: int = 60) -> str:
    kernel, host = int(draw.near("kernel_ms", 4) * MS), int(draw.near("host_ms", 4) * MS)
    return lines((count, lines(f"- launch 0 {kernel} 1", work, "C15 sync 0", f"C03 burn {host}")))


@_robust("R2")
def killed(draw: Draw) -> Scenario:
    """SIGKILL, most likely in the middle of a call."""
    script = role("main") + lines(WARM, _steps(draw, "- query 0", 500))
    return _made("R2", "killed in a call", draw, script, kill_after_s=0.7 + draw.random.random() / 5)


@_robust("R3")
def left_by_longjmp(draw: Draw) -> Scenario:
    """A signal handler leaves the wait by longjmp: the GPU still works when the host goes on."""
    return _made(
        "R3", "longjmp out of a wait", draw, role("main") + lines(WARM, _steps(draw, "- jump 0 2000"))
    )


@_robust("R4")
def joined_late(draw: Draw) -> Scenario:
    """Attached in mid-run: other streams may hold work from before that nobody saw."""
    script = role("main") + lines(
        "- launch 0 100000 1", "- launch 1 4000000000 1", "- gate", _steps(draw, "- query 0")
    )
    return _made("R4", "attached in mid-run", draw, script + "- sync 1\n", attached=True, streams="nn")


@_robust("R5")
def hidden(draw: Draw) -> Scenario:
    """Work through an entry of the driver that nobody probes: seen by NVML only, if at all."""
    busy = lines((250, lines("- hidden 0 100", "- sleep 2000000")))
    # NVML's figure may be two seconds old, so nothing can contradict before
    script = role("main") + lines(WARM, (20, lines("- launch 0 2000000 1", "C15 sync 0", busy)))
    return _made("R5", "submits unseen", draw, script, limit_ms=4500.0)


@_robust("R6")
def shared(draw: Draw) -> Scenario:
    """A process that is not watched works on the same GPU."""
    outside = role("main", cpu=0) + lines((0, lines("- launch 0 3000000 1", "- sync 0", "- sleep 1000000")))
    script = role("main") + lines(WARM, _steps(draw, "- query 0"))
    return _made("R6", "a stranger on the GPU", draw, script, outside=outside)


@_robust("R7")
def other_stream(draw: Draw) -> Scenario:
    """One stream drained, another busy."""
    script = role("main") + lines(WARM, _steps(draw, "- launch 1 6000000 1"), "- sync 1")
    return _made("R7", "the other stream is busy", draw, script, streams="nn")


@_robust("R8")
def host_function(draw: Draw) -> Scenario:
    """A host function in the stream: not empty, yet the GPU does nothing."""
    script = role("main") + lines(WARM, _steps(draw, "- hostfn 0 3000000"))
    return _made("R8", "host function in the stream", draw, script)


@_robust("R9")
def legacy(draw: Draw) -> Scenario:
    """A wait for the legacy default stream says nothing of streams that do not block for it."""
    script = role("main") + lines(WARM, _steps(draw, "- launch 1 6000000 1"), "- devsync")
    return _made("R9", "legacy and non-blocking streams", draw, script, streams="ln")
