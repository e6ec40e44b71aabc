"""Facts about files of others: from the child that reads them, or read here where there is none.

The child's answers come from a file that anybody may have written and from a process that such a file may
have compromised. So they are plain data, and each part is validated.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from probes import api
from probes.code import communicators, elf, interpreter, libraries, thread_states
from probes.code.interpreter import Interpreter
from probes.code.layout import Layout
from probes.code.libraries import Probe, Runtime, Target
from probes.code.symbols import Functions
from probes.code.thread_states import InterpreterPlace
from probes.files import file_reader, file_trust, untrusted_files
from probes.files.mmap_events import Mapped
from probes.files.untrusted_files import File, Identity

_ADDRESSES = 1 << 63
_MOST_PROBES = 4 * (len(api.BY_OP) + len(communicators.FUNCTIONS))  # a function has some variants


def probes_of(target: Target, file: File) -> tuple[list[Probe], str]:
    """What to probe in a library, and its build id. Raises OSError, elf.ElfError."""
    if file_reader.current() is None:
        probes, image = libraries.probes_of(target, file)
        return probes, image.build_id
    found = _answer("probes", [target.layer, target.major, target.static], file, target.shown)
    try:
        rows, build_id = found
        return _probes(rows), _text(build_id)
    except (TypeError, ValueError) as error:
        raise elf.ElfError(_NONSENSE) from error


def look_ahead(found: Iterable[Target], program: Path | None) -> threading.Thread:
    """Starts a thread that has files read ahead."""
    reader = file_reader.current()
    questions: dict[tuple[int, int], tuple[str, Target, list[Any]]] = {}
    if program is not None and (target := libraries.program(program)) is not None:
        questions[target.identity] = "runtime", target, []
    for target in found:  # some have several names: the first is used
        questions.setdefault(target.identity, ("probes", target, [target.layer, target.major, target.static]))

    def look() -> None:
        if reader is not None:
            for job, target, what in questions.values():
                reader.look_ahead(str(target.path), job, what, target.identity, target.shown)

    thread = threading.Thread(target=look, name="gputop-ahead", daemon=True)
    thread.start()
    return thread


def look_ahead_at(target: Target) -> None:
    """Has a library opened and read ahead: several at once are sooner done."""
    if (reader := file_reader.current()) is not None:
        what = [target.layer, target.major, target.static]
        reader.look_ahead(str(target.path), "probes", what, target.identity, target.shown)


def linked_runtime(target: Target) -> Runtime | None:
    """How the CUDA runtime is linked into a program; None: not known for now."""
    try:
        with untrusted_files.opened(target.path, target.identity) as file:
            if file_reader.current() is None:
                return libraries.runtime_in(file)
            return Runtime(_answer("runtime", [], file, target.shown))
    except (OSError, elf.ElfError, ValueError) as error:
        late = isinstance(error, OSError) and error.errno == errno.ETIMEDOUT
        return None if late else Runtime.ABSENT


def interpreter_in(file: File, shown: str) -> Interpreter | None:
    """The interpreter in a file, if there is one. Raises OSError, elf.ElfError."""
    if file_reader.current() is None:
        return interpreter.read(file, shown)
    return _interpreter(_answer("interpreter", [shown], file, shown), shown)


@contextmanager
def interpreter_at(path: Path, identity: Identity, shown: str) -> Iterator[tuple[File, Interpreter | None]]:
    """A file of another user, and the interpreter in it, by one request. Raises OSError, elf.ElfError."""
    try:
        opened, found = untrusted_files.opened_for("interpreter", path, identity, [shown], shown)
    except file_reader.UnreadableError as error:
        raise elf.ElfError(str(error)) from error
    with opened as file:
        yield file, interpreter_in(file, shown) if found is None else _interpreter(found[0], shown)


def _interpreter(found: Any, shown: str) -> Interpreter | None:
    if found is None:
        return None
    try:
        _path, (major, minor), problem, layout, *places = found
        made = Layout(*map(_number, layout)) if layout is not None else None
        version = (_number(major, 256), _number(minor, 256))
        return Interpreter(shown, version, _text(problem), made, *map(_number, places))
    except (TypeError, ValueError) as error:
        raise elf.ElfError(_NONSENSE) from error


def functions_in(file: File, names: Sequence[str], shown: str) -> dict[str, int]:
    """Where functions begin in a file, as far as it exports them. Raises as above."""
    if file_reader.current() is None:
        begins = elf.read(file).functions
        return {name: begins[name] for name in names if name in begins}
    found = _answer("begins", list(names), file, shown)
    try:
        rows = zip(names, found, strict=True)
        return {name: _number(begin) for name, begin in rows if begin is not None}
    except (TypeError, ValueError) as error:
        raise elf.ElfError(_NONSENSE) from error


def library_in(target: Target, file: File, witness: str) -> tuple[list[Probe], str, str, int | None]:
    """What to probe in a library, its build id, its soname, and where one of its functions begins.

    Raises:
        OSError, elf.ElfError: As above.
    """
    if file_reader.current() is None:
        probes, image = libraries.probes_of(target, file)
        return probes, image.build_id, image.soname, image.functions.get(witness)
    what = [target.layer, target.major, target.static, witness]
    found = _answer("library", what, file, target.shown)
    try:
        rows, build_id, soname, begin = found
        return _probes(rows), _text(build_id), _text(soname), None if begin is None else _number(begin)
    except (TypeError, ValueError) as error:
        raise elf.ElfError(_NONSENSE) from error


def names_in(file: File, shown: str) -> tuple[int, float]:
    """(functions with names, share that keep frame pointers) of a program. Raises as above."""
    if file_reader.current() is None:
        functions = Functions(file.again())
        try:
            return len(functions), functions.keeping()
        finally:
            functions.close()
    found = _answer("names", [], file, shown)
    try:
        count, share = found
        return _number(count), min(max(float(share), 0.0), 1.0)
    except (TypeError, ValueError) as error:
        raise elf.ElfError(_NONSENSE) from error


def threads_of(pid: int, found: Interpreter, mapping: Mapped) -> InterpreterPlace:
    """Where the threads of a process keep their state.

    Raises:
        NotYetError: The interpreter is being initialised.
        NoSlotError: It cannot be found.
        OSError: The process has ended, or its memory is not accessible, or does not answer.
    """
    reader = file_reader.current()
    if reader is None:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return thread_states.locate(memory, found, mapping)
        finally:
            os.close(memory)
    try:
        what = [pid, *thread_states.packed(found, mapping)]
        answer, _ = reader.request("threads", what, (-pid, mapping.span[0]), f"the memory of process {pid}")
        if answer == "not yet":
            raise thread_states.NotYetError
        return InterpreterPlace(*map(_number, answer, (1 << 64, 1 << 64, 1 << 32, 1 << 32)))
    except (file_reader.UnreadableError, TypeError, ValueError) as error:
        raise thread_states.NoSlotError from error


def doubt(path: Path, file: File) -> str:
    """Why other users may have a hand in a file; "" where they cannot."""
    reader = file_reader.current()
    if reader is None:
        return file_trust.doubt(path, file.identity)
    try:
        return _text(reader.request("doubt", [str(path), list(file.identity)], file.identity, str(path))[0])
    except (OSError, file_reader.UnreadableError, ValueError) as error:
        return f"its permissions cannot be read ({error})"


_NONSENSE = "the process that read it sent an invalid answer"


def _answer(job: str, what: list[Any], file: File, shown: str) -> Any:
    reader = file_reader.current()
    assert reader is not None
    try:
        return reader.request(job, what, file.identity, shown, file.descriptor)[0]
    except file_reader.UnreadableError as error:
        raise elf.ElfError(str(error)) from error


def _probes(rows: Any) -> list[Probe]:
    if len(rows) > _MOST_PROBES:
        raise ValueError("more probes than there are functions")
    return [
        Probe(_text(symbol), _number(offset), _number(cookie, 1 << 64), bool(cheap))
        for symbol, offset, cookie, cheap in rows
    ]


def _number(value: Any, most: int = _ADDRESSES) -> int:
    if not isinstance(value, int) or not 0 <= value < most:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > elf.LONGEST_NAME:
        raise ValueError("no text of a sensible length")
    return value
