"""What is to be known of a file of somebody else's: by the child that reads it, or here where there is none.

What the child says was made from a file that anybody may have written, by a process that it may have taken
over. So it is plain data, and each part is held against what it may be.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from probes import api
from probes.code import elf, foreign, interpreter, libraries, reader
from probes.code.foreign import File
from probes.code.interpreter import Interpreter
from probes.code.layout import Layout
from probes.code.libraries import Probe, Runtime, Target

_ADDRESSES = 1 << 63
_MOST_PROBES = 4 * len(api.BY_OP)  # a function has some variants


def probes_of(target: Target, file: File) -> tuple[list[Probe], str]:
    """What to probe in a library, and its build id. Raises OSError, elf.ElfError."""
    if reader.current() is None:
        probes, image = libraries.probes_of(target, file)
        return probes, image.build_id
    found = _asked("probes", [target.layer, target.major, target.static], file, target.shown)
    try:
        rows, build_id = found
        if len(rows) > _MOST_PROBES:
            raise ValueError
        made = [
            Probe(_text(symbol), _number(offset), _number(cookie, 1 << 64), bool(cheap))
            for symbol, offset, cookie, cheap in rows
        ]
        return made, _text(build_id)
    except (TypeError, ValueError) as error:
        raise elf.ElfError(_NONSENSE) from error


def look_ahead(found: Iterable[Target], program: Path | None) -> threading.Thread:
    """Has files read while something else goes on, in a thread that is begun.

    Args:
        found: Libraries that will be attached to.
        program: That of the command to come, which will be looked into.
    """
    asked = reader.current()
    questions: dict[tuple[int, int], tuple[str, Target, list[Any]]] = {}
    if program is not None and (target := libraries.program(program)) is not None:
        questions[target.identity] = "runtime", target, []
    for target in found:  # some have several names: the first is asked for
        questions.setdefault(target.identity, ("probes", target, [target.layer, target.major, target.static]))

    def look() -> None:
        for job, target, what in questions.values() if asked is not None else ():
            assert asked is not None
            asked.look_ahead(str(target.path), job, what, target.identity, target.shown)

    thread = threading.Thread(target=look, name="gputop-ahead", daemon=True)
    thread.start()
    return thread


def look_ahead_at(target: Target) -> None:
    """Has a library opened and read at once, which is sooner than one after the other."""
    if (asked := reader.current()) is not None:
        what = [target.layer, target.major, target.static]
        asked.look_ahead(str(target.path), "probes", what, target.identity, target.shown)


def linked_runtime(target: Target) -> Runtime:
    """Whether the CUDA runtime is linked into a program, and whether it can be probed there."""
    try:
        with foreign.opened(target.path, target.identity) as file:
            if reader.current() is None:
                return libraries.runtime_in(file)
            return Runtime(_asked("runtime", [], file, target.shown))
    except (OSError, elf.ElfError, ValueError):
        return Runtime.ABSENT


def interpreter_in(file: File, shown: str) -> Interpreter | None:
    """The interpreter in a file, if there is one. Raises OSError, elf.ElfError."""
    if reader.current() is None:
        return interpreter.read(file, shown)
    found = _asked("interpreter", [shown], file, shown)
    if found is None:
        return None
    try:
        _path, (major, minor), problem, layout, *places = found
        made = Layout(*map(_number, layout)) if layout is not None else None
        version = (_number(major, 256), _number(minor, 256))
        return Interpreter(shown, version, _text(problem), made, *map(_number, places))
    except (TypeError, ValueError) as error:
        raise elf.ElfError(_NONSENSE) from error


def function_in(file: File, name: str, shown: str) -> int | None:
    """Where in a file a function begins that it exports; None where it has none. Raises as above."""
    if reader.current() is None:
        return elf.read(file).functions.get(name)
    found = _asked("function", [name], file, shown)
    try:
        return None if found is None else _number(found)
    except (TypeError, ValueError) as error:
        raise elf.ElfError(_NONSENSE) from error


_NONSENSE = "the process that read it answered nonsense"


def _asked(job: str, what: list[Any], file: File, shown: str) -> Any:
    asked = reader.current()
    assert asked is not None
    try:
        return asked.ask(job, what, file.identity, shown, file.descriptor)[0]
    except reader.UnreadableError as error:
        raise elf.ElfError(str(error)) from error


def _number(value: Any, most: int = _ADDRESSES) -> int:
    if not isinstance(value, int) or not 0 <= value < most:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > elf.LONGEST_NAME:
        raise ValueError("no text of a sensible length")
    return value
