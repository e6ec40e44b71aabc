"""A pool of processes, each with one piece of work at a time."""

from __future__ import annotations

import pickle
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from gputop.errors import GputopError
from gputop.process.isolation import isolated

Result = TypeVar("Result")


class PartError(GputopError):
    """A process could not do its work."""


class ProcessEndedError(PartError):
    """A process ended during its work."""


class ProcessPool:
    """At most so many processes, started when needed; they end with the context, whatever they do.

    The end of one does not affect the others' work. The terminal's interrupt reaches this process only.
    """

    def __init__(self, count: int) -> None:
        self._threads = ThreadPoolExecutor(count)
        self._running: list[subprocess.Popen[bytes]] = []
        self._idle: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._running:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._running:
            process.communicate()

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Call a function in a process of the pool.

        The future raises ``PartError`` with the function's ``GputopError``; ``ProcessEndedError`` if the
        process ended, as it does by any other exception.
        """
        return self._threads.submit(lambda: next(self._results(function, arguments)))

    def submit_chained(
        self, function: Callable[..., Iterator[Any]], *arguments: Any, after: Future[Any]
    ) -> tuple[Future[Any], Future[Any]]:
        """Return (first, second value) of a generator; the result of ``after`` is its last argument."""
        first: Future[Any] = Future()

        def both() -> Any:
            try:
                results = self._results(function, (*arguments, after.result()))
                first.set_result(next(results))
                return next(results)
            finally:
                first.cancel()  # if it is not set: no thread waits for it in vain

        return first, self._threads.submit(both)

    def _results(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Iterator[Any]:
        with self._lock:
            process = self._idle.pop() if self._idle else None
            if process is None:
                words, pipe = isolated("gputop.parts"), subprocess.PIPE
                process = subprocess.Popen(words, stdin=pipe, stdout=pipe, start_new_session=True)
                self._running.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        more = True
        try:
            pickle.dump((function, arguments), process.stdin)
            process.stdin.flush()
            while more:
                fine, more, result = pickle.load(process.stdout)
                if not more:
                    with self._lock:
                        self._idle.append(process)
                if not fine:
                    raise PartError(result)
                yield result
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)  # it closes its output before it has a status
            raise ProcessEndedError(
                f"a process has ended ({process.poll()}); was it killed, or is there too little memory?"
            ) from error
