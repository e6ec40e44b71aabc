"""gputop for a test that looks at the whole machine: programs of other workers are none of it.

It attaches to nothing because of them, and their libraries are files of their own (tests/apart.py): so they
meet none of its probes.
"""

from __future__ import annotations

import sys

from gputop.__main__ import main
from probes.code import libraries
from probes.observe.live_source import LiveSource
from tests import apart


def _look_away() -> None:
    """Has the search for programs leave those in the namespaces of others out."""
    all_pids, wanted = libraries.all_pids, LiveSource.wanted

    def pids() -> list[int]:
        strangers = apart.others()
        return [pid for pid in all_pids() if apart.namespace_of(pid) not in strangers]

    def is_wanted(source: LiveSource, pid: int) -> bool:
        return apart.namespace_of(pid) not in apart.others() and wanted(source, pid)

    libraries.all_pids = pids
    LiveSource.wanted = is_wanted  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.argv[0] = "gputop"
    _look_away()
    sys.exit(main())
