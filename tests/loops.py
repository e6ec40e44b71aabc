"""Loops as PyTorch runs them, written operation after operation: every time and every step is known."""

from __future__ import annotations

from gputop.analysis.answer.report import StepFacts
from gputop.analysis.compare import Diff
from gputop.analysis.compare_parts import compare
from tests import programs as p
from tests.programs import D2H, H2D, LAUNCH, MAIN, SYNC, Program, started

AUTOGRAD = 11
KIB, MIB = 1 << 10, 1 << 20


class Loop:
    """A program that is written operation after operation; kernels have handles, times are microseconds."""

    def __init__(self, pid: int = MAIN, program: Program | None = None, shift: int = 0) -> None:
        """``shift`` is added to all handles."""
        self.program, self.pid, self.now, self.shift = program or started(), pid, 0, shift

    def call(self, op: str, length: int = 4, **more: int) -> None:
        """One call of the main thread or, by ``tid``, of another."""
        self.program.call(op, self.now, self.now + length, pid=self.pid, **{"tid": self.pid, **more})
        self.now += length + 6

    def kernels(self, first: int, count: int, **more: int) -> None:
        """Launches of kernels, each another one."""
        for number in range(count):
            self.call(LAUNCH, aux=self.shift + first + number, **more)

    def host(self, us: int) -> None:
        """Python."""
        self.now += us

    def send(self, size: int = MIB) -> None:
        """``batch.cuda()``: a copy, and a wait."""
        self.call(p.COPY_ASYNC, 30, kind=H2D, bytes=size)
        self.call(SYNC, 20)

    def item(self) -> None:
        """``loss.item()``."""
        self.call(p.COPY_ASYNC, kind=D2H, bytes=4)
        self.call(SYNC, 300)

    def forward(self, layers: int = 6) -> None:
        """The same five kernels in each layer, then the loss."""
        for _ in range(layers):
            self.kernels(1000, 5)
        self.kernels(1050, 4)

    def backward(self, layers: int = 6) -> None:
        """By autograd's thread."""
        self.kernels(2050, 3, tid=AUTOGRAD)
        for _ in range(layers):
            self.kernels(2000, 8, tid=AUTOGRAD)

    def optimizer(self) -> None:
        """A few kernels for all parameters."""
        for _ in range(4):
            self.kernels(3000, 3)

    def train(self, *, batch: bool = True) -> None:
        """A usual step."""
        if batch:
            self.host(3000)
            self.send()
        self.forward()
        self.backward()
        self.optimizer()

    def facts(self) -> StepFacts | None:
        """What is reported."""
        return self.program.report().steps

    def count(self) -> int:
        """How many steps are reported."""
        facts = self.facts()
        return 0 if facts is None else facts.count


def diff(before: Loop, after: Loop) -> Diff:
    """The two compared."""
    return compare(before.program.evidence(), after.program.evidence())
