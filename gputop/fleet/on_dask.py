"""Explains recordings on Dask: an existing scheduler, or a cluster of this machine."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, Final

from gputop.errors import GputopError, install_command
from gputop.fleet.explain_task import WORKER_MEMORY, ExplainOutcome, Task, explain_tasks, installed
from gputop.fleet.worker_answers import checked
from gputop.fleet.workers import TRIES, Engine
from gputop.process.isolation import isolate_children

ADDRESS: Final = "DASK_SCHEDULER_ADDRESS"  # Dask's own variable
_BATCH = 16  # most recordings of a task: some seconds of work, which keeps the scheduler idle
_TASKS = 4  # fewest tasks of a worker, so that none waits long for the last one
CONNECT_S = 20
_POLL_S = 0.2
CLOSE_S = 2.0  # for a scheduler that may be gone at the end
WAIT_S = 10.0  # without a worker, until a report
_OWN: Final[dict[str, list[str]]] = {
    # no HTTP routes, which other users of this machine could query
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # a module name: Dask would write source text into a shared folder
    "distributed.worker.preload": ["gputop.fleet.dask_setup"],
}
Found = tuple[Task, ExplainOutcome | None]


@contextmanager
def dask(scheduler: str | None, workers: int, report: Callable[[str], None]) -> Iterator[Engine]:
    """Context manager: an engine on Dask.

    Dask reassigns the tasks of a dead worker. Recordings of tasks that kill workers repeatedly are retried
    one by one.

    Args:
        scheduler: Address (``tcp://HOST:8786``) or scheduler file (``….json``); None: a cluster for
            this process alone, with mutual certificates.
        workers: Processes of the own cluster.
        report: Called with news for the waiting user.

    Raises:
        GputopError: dask is not installed, or the scheduler cannot be reached.
    """
    try:
        settings: Any = import_module("dask")
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise GputopError(
            f"dask is not installed, which spreads the work: {install_command('dask')}; without --dask and "
            "--scheduler worker processes of this machine explain"
        ) from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # gputop reports the relevant events itself
    if scheduler is not None:
        with _connected(distributed, scheduler) as client:
            yield DaskClient(client, scheduler, report).outcomes
        return
    isolate_children()
    with TemporaryDirectory(prefix="gputop-fleet-") as folder, _own_settings(settings.config, folder):
        cluster = distributed.LocalCluster(
            local_directory=folder,
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=WORKER_MEMORY,
            host="127.0.0.1",
            security=True,  # else any user of this machine could run code in it
            dashboard_address=None,
            worker_dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )
        with cluster, distributed.Client(cluster) as client:
            yield DaskClient(client, "this machine", report).outcomes


@contextmanager
def _own_settings(config: Any, folder: str) -> Iterator[None]:
    """Context manager: Dask with a private folder, and without settings of files and variables.

    Dask's default folder may hold links of other users, and settings (root's caller's by ``HOME``) may name
    code to run.
    """
    config.refresh(paths=[], env={})
    try:
        with config.set({**_OWN, "temporary-directory": folder}):
            yield
    finally:
        config.refresh()


@contextmanager
def _connected(distributed: Any, scheduler: str) -> Iterator[Any]:
    try:
        named = {"scheduler_file": scheduler} if scheduler.endswith(".json") else {"address": scheduler}
        client = distributed.Client(**named, timeout=CONNECT_S)
    except (OSError, ValueError, TypeError) as error:
        raise GputopError(
            f"no Dask scheduler could be reached at {scheduler}: {error}; is it there, and may this machine "
            "connect to it? An address looks like tcp://HOST:8786"
        ) from error
    try:
        yield client
    finally:
        with suppress(distributed.TimeoutError):  # all answers have arrived, or a better error follows
            client.close(timeout=CLOSE_S)


class DaskClient:
    """Batches of recordings as tasks of one client."""

    def __init__(self, client: Any, where: str, report: Callable[[str], None]) -> None:
        self._client, self._where, self._report = client, where, report

    def outcomes(self, tasks: Sequence[Task], stopped: Callable[[], bool]) -> Iterator[Found]:
        threads = sum(self._client.nthreads().values()) or os.cpu_count() or 1
        size = max(min(_BATCH, len(tasks) // (_TASKS * threads)), 1)
        rest = iter(tasks)
        batches = iter(lambda: list(islice(rest, size)), [])
        suspects: list[Task] = []
        for batch, found in self._done([*batches], stopped):
            if found is None:
                suspects += batch
            else:
                yield from zip(batch, found, strict=True)
        for task in suspects:  # one at a time: a bad one would kill others' workers
            for _batch, found in self._done([[task]], stopped):
                yield task, found[0] if found else None

    def _done(
        self, batches: Sequence[list[Task]], stopped: Callable[[], bool]
    ) -> Iterator[tuple[list[Task], list[ExplainOutcome] | None]]:
        """Yield batches as they complete, with None if workers died over one; stops early on request."""
        running: dict[Any, list[Task]] = {}
        for batch in batches:
            future = self._client.submit(explain_tasks, batch, installed(), pure=False, retries=TRIES)
            running[future] = batch
        waiting_since = time.monotonic()
        try:
            while running and not stopped():
                ended = [future for future in running if future.done()]
                if not ended:
                    waiting_since = self._waited(waiting_since)
                    time.sleep(_POLL_S)
                for future in ended:
                    found = self._result(future, len(running[future]))
                    yield running.pop(future), found
                    waiting_since = time.monotonic()
        finally:
            self._client.cancel([*running])

    def _result(self, future: Any, count: int) -> list[ExplainOutcome] | None:
        try:
            found = checked(future.result(), count)
        except (CancelledError, OSError) as error:  # of dask's: CommClosedError is an OSError
            raise GputopError(
                f"the connection to the Dask scheduler at {self._where} was lost: run it again, what was "
                "explained is kept"
            ) from error
        except Exception as error:
            if type(error).__name__ == "KilledWorker":
                return None
            raise GputopError(
                f"the workers of {self._where} cannot explain recordings ({type(error).__name__}: {error}): "
                f"do all of them have gputop {installed()} and the same Python?"
            ) from error
        if isinstance(found, str):
            raise GputopError(found)
        return found

    def _waited(self, since: float) -> float:
        """Report once in a while that there is no worker."""
        if time.monotonic() - since < WAIT_S:
            return since
        known: Mapping[str, int] = self._client.nthreads()
        if not known:
            self._report(f"{self._where} has no worker yet: waiting for one")
        return time.monotonic() + (0 if known else 6 * WAIT_S)
