"""``pytest --quick``, which is ``make check``: the tests that stay in one process, without root and eBPF.

A test that starts a process is skipped on the spot, whoever in it starts it: no list says which ones do.
Those that are marked are not run at all.
"""

from __future__ import annotations

import multiprocessing.process
import sys
from collections.abc import Generator

import pytest

LEFT_OUT = ("ebpf", "bpftrace", "timed", "long", "slow")
_MULTIPROCESSING = "multiprocessing"
_STARTS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", _MULTIPROCESSING}
)
_WHY = "it starts a process: make test runs it"


def selected(item: pytest.Item) -> bool:
    """Whether none of a test's markers leaves it out."""
    return not any(item.get_closest_marker(name) for name in LEFT_OUT)


class Quick:
    """The plugin that ends a test where it starts a process."""

    def __init__(self) -> None:
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
            raise pytest.skip.Exception(_WHY)

    def _phase(self) -> Generator[None, object, object]:
        """A setup or a call; a thread may have been refused, or what was to be cleaned up is not there."""
        self._watching, self._refused = True, False
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

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Fixtures start no process either."""
        return (yield from self._phase())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Nor does the test."""
        return (yield from self._phase())
