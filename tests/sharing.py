"""How tests share a machine, with each other and with others: nothing fails because it is busy.

A test that measures times is marked ``timed``: it, and all that it starts, go before everybody else, as
real-time processes do, and no other such test runs beside it. Elsewhere nothing may depend on a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator

import pytest

TIMED = "timed"
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


def group_of(item: pytest.Item) -> str:
    """Whom a test runs behind, never beside; empty: anybody may run beside it.

    Tests that share what a module's fixture made are one group as well: it is made once.
    """
    if item.get_closest_marker("xdist_group") is not None:
        return ""  # said by itself
    if item.get_closest_marker(TIMED) is not None:
        return TIMED
    fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return item.nodeid.split("::")[0] if any(made[-1].scope == "module" for made in fixtures.values()) else ""


class Sharing:
    """The plugin that gives timed tests, their fixtures included, the machine first."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """A test from its fixtures to its end."""
        if item.get_closest_marker(TIMED) is None:
            return (yield)
        with before_all_others():
            return (yield)
