"""Runs tests over and over, each time in a fork that imports the tree anew: what is slow to import is there.

Started in the copy that is mutated; reads one JSON object a line, writes one back. It is a process of the
project's own environment, its user is one of the environment that has cosmic-ray.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any

import _hypothesis_pytestplugin  # noqa: F401
import msgpack  # type: ignore[import-untyped, unused-ignore]  # noqa: F401
import numpy.testing  # noqa: F401
import pytest
import pytest_asyncio  # noqa: F401
from hypothesis import HealthCheck, Phase, settings

_MEMORY_BYTES = 4 << 30
_WALL_S = 300  # whatever hangs without taking CPU
_WORDS = ("-q", "-x", "--quick", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist")
_EXAMPLES = "mutants"  # of hypothesis: the same as ever, but whatever fails is not made smaller


def _run(tests: list[str], cpu_s: int) -> dict[str, Any]:
    """One run in a fork.

    Args:
        tests: Files, and what else pytest is to be told.
        cpu_s: Seconds of CPU after which it counts as endless.
    """
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        os.setpgid(0, 0)
        signal.alarm(_WALL_S)
        os._exit(int(pytest.main([*_WORDS, f"--hypothesis-profile={_EXAMPLES}", *tests])))
    _, status, use = os.wait4(child, 0)
    return {"status": os.waitstatus_to_exitcode(status), "cpu_s": use.ru_utime + use.ru_stime}


def main() -> None:
    """Until nobody asks any more."""
    sys.path.insert(0, os.getcwd())
    settings.register_profile(
        _EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
        phases=[Phase.explicit, Phase.generate],
    )
    sys.dont_write_bytecode = True  # two mutants within one tick of the file system's clock are two
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_run(asked["tests"], asked["cpu_s"])), flush=True)


if __name__ == "__main__":
    main()
