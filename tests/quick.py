"""``pytest --quick``, which is ``make check``: the tests that stay in one process, without root and eBPF.

A test that starts a process is skipped on the spot, whoever in it starts it: no list says which ones do.
Those that are marked are not run at all. ``make test`` runs them beside the timed tests, which nothing that
starts a process may run beside; ``--decided FILE`` holds what the next run need not run again.
"""

from __future__ import annotations

import multiprocessing.process
import sys
from collections.abc import Generator
from pathlib import Path

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


class Decided:
    """The plugin that writes which tests have passed or failed, a line each; the skipped ones have not.

    It ends the run after the test during which ``FILE.enough`` appears: two processors do the rest sooner.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._enough = file.with_name(f"{file.name}.enough")
        self._names: dict[str, None] = {}
        self._ended = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """A test, and a look whether another is wanted."""
        result = yield
        if self._enough.exists():
            self._ended = True
            item.session.shouldstop = "the next run does the rest"
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended."""
        if report.failed or (report.when == "call" and report.passed):
            self._names[report.nodeid] = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Writes them; to have been ended is no failure."""
        if self._ended and session.exitstatus == pytest.ExitCode.INTERRUPTED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
        self._file.write_text("".join(f"{name}\n" for name in self._names))


def undecided(items: list[pytest.Item], file: Path) -> list[pytest.Item]:
    """Those tests about which a run before this one has decided nothing."""
    decided = set(file.read_text().splitlines())
    return [item for item in items if item.nodeid not in decided]
