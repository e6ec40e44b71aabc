"""How tests share a machine, with each other and with others: nothing fails because it is busy.

A test that measures times is marked ``timed``: it, and all that it starts, go before everybody else, as
real-time processes do, and no other such test runs beside it. Elsewhere nothing may depend on a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

TIMED, DEAR = "timed", "dear"
_DEAR = 1000  # counts as so many tests
OBSERVE = ("ebpf", "bpftrace")  # what such tests do is met by all programs of the machine
TIMES = "GPUTOP_TEST_TIMES"  # a file that is there while another process measures times (scripts/test.sh)
_RESET_ON_FORK = getattr(os, "SCHED_RESET_ON_FORK", 0)


@contextlib.contextmanager
def before_all_others() -> Iterator[None]:
    """Meanwhile this thread and what it starts wait for nobody else's processes; as far as we may."""
    policy, parameter = os.sched_getscheduler(0) & ~_RESET_ON_FORK, os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:  # not root, or a container without the right
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameter)


def observes(item: pytest.Item) -> bool:
    """Whether a test does what changes the times of others, whatever their priority."""
    return any(item.get_closest_marker(marker) for marker in OBSERVE)


def group_of(item: pytest.Item) -> str:
    """Whom a test runs behind, never beside; empty: anybody may run beside it.

    Tests that share what a module's fixture made are one group as well: it is made once. So are those of a
    module that do not observe: they wait little, and what the first has read or computed is there.
    """
    if (said := item.get_closest_marker("xdist_group")) is not None:
        return str(said.args[0])
    if item.get_closest_marker(TIMED) is not None:
        return TIMED
    module = item.nodeid.split("::")[0]
    return f"{module} observes" * _shares(item) if observes(item) else module


def _shares(item: pytest.Item) -> bool:
    """Whether a fixture of its module is made for a test."""
    fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return any(made[-1].scope == "module" for made in fixtures.values())


def turn_of(item: pytest.Item) -> int:
    """When workers take a test, or the group of which it is the first to be taken.

    What observes comes once times are measured, before it what takes long, and behind it what does not: so at
    the end no worker waits long for another one.
    """
    if observes(item):
        return 1
    long = _shares(item) or any(item.get_closest_marker(marker) for marker in ("slow", "xdist_group"))
    return 0 if long else 2


class Sharing:
    """The plugin that gives timed tests, fixtures included, the machine first, and each group one worker.

    pytest-xdist's own ``loadgroup`` writes the group into a test's name, and pytest 9.2 does not listen. So a
    worker leaves a file with the groups before it says what it has collected.
    """

    @cached_property
    def _file(self) -> Path:
        """Made where there are workers, and not in them: they end without cleaning up."""
        self._folder = tempfile.TemporaryDirectory(prefix="gputop-test-groups-")
        return Path(self._folder.name, "groups.json")

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # what it waits here is not of its time
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """A test from its fixtures to its end."""
        if observes(item) and (times := os.environ.get(TIMES)):
            while os.path.exists(times):
                time.sleep(0.1)
        if item.get_closest_marker(TIMED) is None:
            return (yield)
        with before_all_others():
            return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tells a worker where the groups belong."""
        node.workerinput["groups"] = str(self._file)

    @pytest.hookimpl(trylast=True)  # what is not chosen counts in no group
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Puts them in the order in which workers take them: turns, and in each what takes longest first."""
        if not hasattr(config, "workerinput"):
            return
        groups = {item: group_of(item) or item.nodeid for item in items}
        sizes, turns = Counter(groups.values()), dict.fromkeys(groups.values(), 2)
        for item, group in groups.items():
            turns[group] = min(turns[group], turn_of(item))
            sizes[group] += _DEAR if item.get_closest_marker(DEAR) else 0
        places = {item: (turns[group], -sizes[group]) for item, group in groups.items()}
        items.sort(key=places.__getitem__)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Writes them, in the first worker."""
        told = getattr(session.config, "workerinput", {})
        if told.get("workerid") == "gw0":
            groups = {item.nodeid: group for item in session.items if (group := group_of(item))}
            Path(told["groups"]).write_text(json.dumps(groups))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> object | None:
        """Hands out groups, and each other test by itself, in the order of the workers."""
        if config.getoption("quick"):
            return None  # nothing there is timed, and in large pieces they go faster
        from xdist.scheduler import LoadScopeScheduling

        file = self._file

        class Groups(LoadScopeScheduling):
            _groups: dict[str, str] | None = None

            def _split_scope(self, nodeid: str) -> str:
                if self._groups is None:
                    self._groups = json.loads(file.read_text())
                return self._groups.get(nodeid, nodeid)

        config.option.loadscopereorder = False  # by the number of tests, without turns
        return Groups(config, log)
