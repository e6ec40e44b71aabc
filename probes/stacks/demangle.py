"""C++ names as their authors wrote them, by this machine's C++ library; without it they stay as they are.

The library runs in a process of its own (``probes/stacks/demangler.py``): names come out of anybody's files.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path

from probes.process.realtime import readable

MOST_CHARACTERS = 400
_LONGEST = 4096  # of a mangled name
_CPU_S = 1.0  # for one name: it takes microseconds, and what takes a second is too much
_PATIENCE_S = 10.0  # where no CPU is to be had; the first line comes when an interpreter has started
_LOOK_S = 0.25
_REFERENCE = re.compile(r"[ST][0-9A-Z]*_")
_MANY_REFERENCES = 20  # to parts before it: three of them may double the text
_MOST_FAILED = 5  # names that were too much; from then on none with many references is tried
_SCRIPT = Path(__file__).resolve().parent / "demangler.py"
_PACKAGES = _SCRIPT.parents[2]


class DemanglerChild:
    """The process; started when the first name comes, and anew when one was too much for it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._failed = 0

    def request(self, name: str) -> str | None:
        """The meaning of a name; None when it was too much."""
        with self._lock:
            if self._failed >= _MOST_FAILED and len(_REFERENCE.findall(name)) > _MANY_REFERENCES:
                return None
            try:
                if self.process is not None and self.process.poll() is not None:
                    self._end()  # ended by others, or not ours: this is a fork
                if self.process is None:
                    self._start()
                line = self._exchange(name.encode(errors="replace"))
            except (OSError, subprocess.SubprocessError):
                line = None
            if line is None:
                self._failed += 1
                self._end()
                return None
            return line.decode(errors="replace")

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SCRIPT), str(_PACKAGES), str(MOST_CHARACTERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,  # the terminal's signals mean gputop, not it
        )
        self._exchange(None)

    def _exchange(self, name: bytes | None) -> bytes | None:
        """Its next line; None where it does not come. Raises OSError."""
        process = self.process
        if process is None or process.stdin is None or process.stdout is None:
            return None
        if name is not None:
            process.stdin.write(name + b"\n")
            process.stdin.flush()
        answer, deadline, most_cpu_s = b"", time.monotonic() + _PATIENCE_S, _cpu_s(process.pid) + _CPU_S
        while not answer.endswith(b"\n"):
            if not readable(process.stdout.fileno(), _LOOK_S):
                if time.monotonic() >= deadline or _cpu_s(process.pid) >= most_cpu_s:
                    return None
                continue
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part or len(answer) > 4 * MOST_CHARACTERS:
                return None
            answer += part
        if answer.find(b"\n") < len(answer) - 1:
            return None  # two lines: from here on answers would belong to other names
        return answer[:-1]

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # the rest was not written
                    pipe.close()


def _cpu_s(pid: int) -> float:
    """The CPU time of a process, by its clock (MAKE_PROCESS_CPUCLOCK). Raises OSError: it has ended."""
    return time.clock_gettime(~pid << 3 | 2)


_helper = DemanglerChild()


@lru_cache(8192)
def demangled(name: str) -> str:
    """The name of a function in C++ (or in Rust's older form); any other name as it is."""
    if not name.startswith("_Z") or not name.isprintable() or len(name) > _LONGEST:
        return name
    return _helper.request(name) or name
