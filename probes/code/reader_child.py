"""A process of its own: answers questions about files of others, each in one that ends with the answer.

A question comes as ``[job, what]`` with the socket for its answer, with the file if that is open.
``open JOB`` opens it first, and hands it over before the answer. Finding and opening a file takes rights; who
reads it has given up all of them.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]

if __name__ == "__main__":
    sys.path.append(sys.argv[1])  # the folder of gputop's packages: the interpreter was started without it
from probes.process import sandbox

_MOST_BYTES = 1 << 16  # of a question: it holds a path
_MEMORY_BYTES = 1 << 30  # of address space, beside what it began with: the tables of the largest library
_SPARE_S = 0.5  # so long after its time somebody who was given up ends by himself


_ALLOWED = sandbox.LOADING - {"open", "openat"}


def _file_of(what: list[Any]) -> Any:
    from probes.code import libraries
    from probes.code.mmap_events import Mapped

    pid, span, file, path, offset = what
    found = libraries.reached(Mapped(pid, tuple(span), tuple(file), path, offset))
    return found and [str(found[0]), list(found[1])]


def _executable(what: list[Any]) -> Any:
    from probes.code import libraries

    found = libraries.executable_of(int(what[0]))
    return found and [str(found.path), found.shown, list(found.identity)]


def _probes(file: Any, what: list[Any]) -> Any:
    from probes.code import libraries

    layer, major, static = what
    target = libraries.Target(Path("/"), "", (0, 0), layer, major, static)
    probes, image = libraries.probes_of(target, file)
    return [[dataclasses.astuple(probe) for probe in probes], image.build_id]


def _runtime(file: Any, what: list[Any]) -> Any:
    from probes.code import libraries

    return libraries.runtime_in(file).value


def _interpreter(file: Any, what: list[Any]) -> Any:
    from probes.code import interpreter

    found = interpreter.read(file, what[0])
    return found and dataclasses.astuple(found)


def _function(file: Any, what: list[Any]) -> Any:
    from probes.code import elf

    return elf.read(file).functions.get(what[0])


LOOKING: dict[str, Callable[[list[Any]], Any]] = {"file_of": _file_of, "executable": _executable}
PARSING: dict[str, Callable[[Any, list[Any]], Any]] = {
    "probes": _probes,
    "runtime": _runtime,
    "interpreter": _interpreter,
    "function": _function,
}


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _answer(job: str, what: list[Any], answer: socket.socket, files: list[int], budget_s: float) -> None:
    from probes.code import elf, foreign

    try:
        if job in LOOKING:
            value = LOOKING[job](what)
        else:
            opens, _, job = job.rpartition(" ")
            if opens:  # first: who has given up his rights can send no descriptor either
                path, identity, what = what
                file = foreign.opened(path, tuple(identity))
                socket.send_fds(answer, [b"+"], [file.descriptor])
            else:
                file = foreign.File(files[0])  # a user's own mount tells nobody else how long it is
            value = _parsed(job, file, what, budget_s) if job else None
        said = ["found", value]
    except elf.ElfError as error:
        said = ["elf", str(error)[:200]]
    except OSError as error:
        said = ["error", [error.errno or 0, (error.strerror or str(error))[:200]]]
    data = msgpack.packb(said)
    while data:  # by write(2): who is confined has no other way
        data = data[os.write(answer.fileno(), data) :]


def _parsed(job: str, file: Any, what: list[Any], budget_s: float) -> Any:
    limits = sandbox.Limits(_mapped_bytes() + _MEMORY_BYTES, max(int(budget_s) + 1, 1), files=16)
    with suppress(OSError):  # where the kernel has no filters it is a process of its own all the same
        sandbox.confine(limits, _ALLOWED)
    return PARSING[job](file, what)


def detach(channel: int) -> None:
    """For a fork: lets go of everything that is its parent's but one descriptor."""
    os.setsid()  # the terminal's signals mean gputop
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.closerange(3, channel)
    os.closerange(channel + 1, 1 << 20)
    os.chdir("/")


def answer_all(questions: socket.socket, budget_s: float) -> None:
    """Answers until nobody asks any more; for a process that does nothing else.

    Args:
        questions: Where they come from.
        budget_s: How long one may take.
    """
    from probes.code import interpreter, libraries  # noqa: F401 (who is confined can import nothing)
    from probes.process import privileges

    with suppress(OSError):
        sandbox.prepared(_ALLOWED, sandbox.Refused.FAILS)
    gc.disable()  # what it has looked at would be copied
    privileges.confine_process(privileges.OBSERVING)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who answer
    questions.sendall(b"r")
    while True:
        data, descriptors, _, _ = socket.recv_fds(questions, _MOST_BYTES, 2)
        if not data:
            return
        if os.fork() == 0:
            try:
                signal.setitimer(signal.ITIMER_REAL, budget_s + _SPARE_S)
                questions.close()
                with socket.socket(fileno=descriptors[0]) as answer:
                    job, what = msgpack.unpackb(data)
                    _answer(job, what, answer, descriptors[1:], budget_s)
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    answer_all(socket.socket(fileno=int(sys.argv[2])), float(sys.argv[3]))
