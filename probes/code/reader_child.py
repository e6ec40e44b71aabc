"""A child process that answers requests about files of others, each in a fork that ends with the answer.

A request is ``[job, what]``, with the socket for its answer and the file's descriptor if it is open. The
answer begins with the number of the process that works on it. ``open JOB`` opens the file first and hands its
descriptor over before the answer: opening takes rights, and the reading process has none. The jobs of
``TALKING`` keep a file read and answer until the last request.
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
from probes.files.reader_protocol import NUMBER_BYTES
from probes.process import privileges, sandbox

_MOST_BYTES = 1 << 16  # of a request: it holds a path
_MEMORY_BYTES = 1 << 30  # of address space, beside that of the start: the tables of the largest library
_TALK_BYTES = 512 << 20  # of a process that keeps the functions of a file
_TALK_CPU_S = 60  # of all its answers: some hundred thousand
TALK_IDLE_S = 10.0  # without a question, after which a conversation ends; the next one begins another
_SPARE_S = 8.0  # beyond its time a process that was given up ends: the waiting side counts slower


_ALLOWED = sandbox.LOADING - {"open", "openat"} | {"setitimer"}
Answers = Callable[[Any], Any]


def _file_of(what: list[Any]) -> Any:
    from probes.code import libraries
    from probes.files.mmap_events import Mapped

    pid, span, file, path, offset = what
    found = libraries.reached(Mapped(pid, tuple(span), tuple(file), path, offset))
    return found and [str(found[0]), list(found[1]), os.stat(found[0]).st_uid]


def _executable(what: list[Any]) -> Any:
    from probes.code import libraries

    found = libraries.executable_of(int(what[0]))
    return found and [str(found.path), found.shown, list(found.identity)]


def _doubt(what: list[Any]) -> Any:
    from probes.files import file_trust

    return file_trust.doubt(Path(what[0]), tuple(what[1]))


def _probes(file: Any, what: list[Any]) -> Any:
    from probes.code import libraries

    layer, major, static = what
    target = libraries.Target(Path("/"), "", (0, 0), layer, major, static)
    probes, image = libraries.probes_of(target, file)
    return [[dataclasses.astuple(probe) for probe in probes], image.build_id]


def _library(file: Any, what: list[Any]) -> Any:
    from probes.code import libraries

    *kind, name = what
    target = libraries.Target(Path("/"), "", (0, 0), *kind)
    probes, image = libraries.probes_of(target, file)
    rows = [dataclasses.astuple(probe) for probe in probes]
    return [rows, image.build_id, image.soname, image.functions.get(name)]


def _runtime(file: Any, what: list[Any]) -> Any:
    from probes.code import libraries

    return libraries.runtime_in(file).value


def _interpreter(file: Any, what: list[Any]) -> Any:
    from probes.code import interpreter

    found = interpreter.read(file, what[0])
    return found and dataclasses.astuple(found)


def _begins(file: Any, what: list[Any]) -> Any:
    from probes.code import elf

    functions = elf.read(file).functions
    return [functions.get(name) for name in what]


def _names(file: Any, what: list[Any]) -> Any:
    from probes.code.symbols import Functions

    functions = Functions(file)
    return [len(functions), functions.keeping()]


def _text(file: Any, what: list[Any]) -> Any:
    from probes.files import source_texts

    return source_texts.read(file)


def _frame(file: Any, what: list[Any]) -> Any:
    from probes.files import shared_pages

    own, descriptor = file
    return shared_pages.frame_of(descriptor, own)


def _threads(file: Any, what: list[Any]) -> Any:
    from probes.code import thread_states

    try:
        place = thread_states.locate(file, *thread_states.unpacked(what[1:]))
    except thread_states.NotYetError:
        return "not yet"
    except thread_states.NoSlotError:
        return "no slot"
    return dataclasses.astuple(place)


def _functions(file: Any, what: list[Any]) -> tuple[Any, Answers]:
    from probes.code.symbols import Functions

    functions = Functions(file)
    return len(functions), lambda places: functions.answers(places) if functions.unchanged else None


LOOKING: dict[str, Callable[[list[Any]], Any]] = {
    "file_of": _file_of,
    "executable": _executable,
    "doubt": _doubt,
}
PARSING: dict[str, Callable[[Any, list[Any]], Any]] = {
    "probes": _probes,
    "library": _library,
    "runtime": _runtime,
    "interpreter": _interpreter,
    "begins": _begins,
    "names": _names,
    "text": _text,
    "frame": _frame,
    "threads": _threads,
}
TALKING: dict[str, Callable[[Any, list[Any]], tuple[Any, Answers]]] = {"functions": _functions}


def _opened(job: str, place: int, what: list[Any]) -> Any:
    """Opens what a job reads, with all rights that there are."""
    from probes.files import shared_pages, source_texts, untrusted_files

    if job == "threads":
        return os.open(f"/proc/{int(what[0])}/mem", os.O_RDONLY | os.O_CLOEXEC)
    if job == "text":
        return source_texts.opened(what)
    file = untrusted_files.reading(place)
    return (shared_pages.OwnPages(), file.descriptor) if job == "frame" else file


def _answer(job: str, what: list[Any], answer: socket.socket, files: list[int], budget_s: float) -> None:
    from probes.code import elf
    from probes.files import untrusted_files

    place = files[0] if files else -1
    facts = None
    if job != "frame":  # its pages are visible to this process only
        privileges.confine_thread(privileges.OBSERVING)
    try:
        if job in LOOKING:
            value = LOOKING[job](what)
        elif job in TALKING:
            file = _opened(job, place, what)
            _confine(_TALK_BYTES, _TALK_CPU_S)
            value, answers = TALKING[job](file, what)
            _talk(value, answers, answer.fileno(), budget_s)
            return
        else:
            opens, _, job = job.rpartition(" ")
            if opens:  # first: without rights a process can send no descriptor either
                path, identity, what = what
                found = untrusted_files.placed(path, tuple(identity))
                place, facts = found.descriptor, [found.size, found.owner]
                socket.send_fds(answer, [b"+"], [place])
            value = None
            if job:
                file = _opened(job, place, what)
                _confine(_MEMORY_BYTES, max(int(budget_s) + 1, 1))
                value = PARSING[job](file, what)
        reply = ["found", [facts, value] if facts else value]
    except elf.ElfError as error:
        reply = ["elf", str(error)[:200]]
    except OSError as error:
        reply = ["error", [error.errno or 0, (error.strerror or str(error))[:200]]]
    data = msgpack.packb(reply)
    while data:  # by write(2): a confined process has no other way
        data = data[os.write(answer.fileno(), data) :]


def _confine(memory: int, cpu_s: int) -> None:
    with suppress(OSError):  # where the kernel has no filters it is a process of its own all the same
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        sandbox.confine(sandbox.Limits(mapped + memory, cpu_s, files=16), _ALLOWED)


def _talk(first: Any, answers: Answers, channel: int, budget_s: float) -> None:
    """Answers requests about one file until their end, or until there is none for a while.

    Each answer has a time limit.
    """
    value = first
    while True:
        os.write(channel, msgpack.packb(["found", value]))
        signal.setitimer(signal.ITIMER_REAL, TALK_IDLE_S)
        data = os.read(channel, _MOST_BYTES)
        if not data:
            return
        signal.setitimer(signal.ITIMER_REAL, budget_s + _SPARE_S)
        value = answers(msgpack.unpackb(data))


def detach(channel: int) -> None:
    """Detaches a fork from its parent's terminal, signals and all descriptors but one."""
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
    """Answers until the last request; for a process that does nothing else."""
    # a confined process can import nothing
    from probes.code import elf, interpreter, libraries, symbols, thread_states  # noqa: F401
    from probes.files import file_trust, mmap_events, shared_pages, source_texts, untrusted_files  # noqa: F401

    with suppress(OSError):
        sandbox.prepared(_ALLOWED, sandbox.Refused.FAILS)
    gc.disable()  # a collection would copy the parent's pages
    privileges.confine_process(privileges.OBSERVING | privileges.DRIVER)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the children that answer are not waited for
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
                    answer.send(os.getpid().to_bytes(NUMBER_BYTES, "little"))
                    job, what = msgpack.unpackb(data)
                    _answer(job, what, answer, descriptors[1:], budget_s)
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    answer_all(socket.socket(fileno=int(sys.argv[2])), float(sys.argv[3]))
