"""``pytest --quick``, which is ``make check``: the tests that stay in one process, without root and eBPF.

A test that starts a process is skipped on the spot, whoever in it starts it: no list says which ones do.
Those that are marked are not run at all.
"""

from __future__ import annotations

import multiprocessing.process
import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from tests import waiting

LEFT_OUT = ("ebpf", "bpftrace", "timed", "long", "slow")
_MULTIPROCESSING = "multiprocessing"
_STARTS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", _MULTIPROCESSING}
)
_LEFT_OUT = "left_out"
_WHY = "it starts a process: make test runs it"


def left_out(item: pytest.Item) -> str | None:
    """The marker that leaves a test out; None: it is run."""
    return next((name for name in LEFT_OUT if item.get_closest_marker(name)), None)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests without such markers; a worker counts the others for the summary."""
    markers = [left_out(item) for item in items]
    if hasattr(config, "workeroutput"):
        config.workeroutput[_LEFT_OUT] = dict(Counter(filter(None, markers)))
    config.hook.pytest_deselected(items=[item for item, marker in zip(items, markers, strict=True) if marker])
    items[:] = [item for item, marker in zip(items, markers, strict=True) if not marker]


class Quick:
    """The plugin that ends a test where it starts a process."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()
        self._watching = self._refused = False
        sys.addaudithook(self._refuse)
        start = multiprocessing.process.BaseProcess.start  # no event tells of these

        def begin(process: multiprocessing.process.BaseProcess) -> None:
            self._refuse(_MULTIPROCESSING, process)
            start(process)

        multiprocessing.process.BaseProcess.start = begin  # type: ignore[method-assign]

    def _refuse(self, event: str, _arguments: object) -> None:
        if self._watching and event in _STARTS:
            self._refused = True
            waiting.hopeless.set()
            raise pytest.skip.Exception(_WHY)

    def _phase(self) -> Generator[None, object, object]:
        """A setup or a call; a thread may have been refused, or what was to be cleaned up is not there."""
        self._watching, self._refused = True, False
        waiting.hopeless.clear()
        try:
            result = yield
        except BaseException:
            if self._refused:
                pytest.skip(_WHY)
            raise
        finally:
            self._watching = False
        if self._refused:
            pytest.skip(_WHY)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Each worker has counted all tests."""
        self._left_out = Counter(getattr(node, "workeroutput", {}).get(_LEFT_OUT, {})) or self._left_out

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line with what was not run, and by which reason."""
        reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
        starting = sum(_WHY in reason for reason in reasons)
        marked = ", ".join(f"{count} {name}" for name, count in sorted(self._left_out.items()))
        terminalreporter.write_line(
            f"make check leaves out: {starting} tests that start a process, {len(reasons) - starting} for "
            f"lack of something on this machine, and by marker {marked or 'none'}; make test runs them"
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Fixtures start no process either."""
        return (yield from self._phase())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Nor does the test."""
        return (yield from self._phase())
