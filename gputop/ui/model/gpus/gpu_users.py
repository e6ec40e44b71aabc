"""The processes on a GPU as a table: on its page, and in a frame as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gputop.engine.frame import GpuProcess, GpuRow
from gputop.format import escape_text, fit, format_bytes, format_percent
from gputop.ui.model.look import Glyphs, Line

Use = tuple[GpuRow, GpuProcess]
_USER_LEAST, _USER_MOST = 4, 16


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int
    text: Callable[[GpuRow, GpuProcess], str]


def _share(title: str, key: str) -> _Column:
    def text(_: GpuRow, row: GpuProcess) -> str:
        value: int | None = getattr(row, key)
        return "-" if value is None else format_percent(value)

    return _Column(title, 5, text)


_COLUMNS = (
    _Column("PID", 8, lambda _, row: str(row.pid)),
    _Column("TYPE", 5, lambda _, row: escape_text(row.kind)),
    _Column("MEMORY", 8, lambda _, row: format_bytes(row.memory_bytes)),
    _share("SM%", "sm_percent"),
    _share("MEM%", "memory_percent"),
    _share("ENC%", "encoder_percent"),
    _share("DEC%", "decoder_percent"),
)
_INSTANCE = _Column("INST", 5, lambda _, row: "-" if row.gpu_instance is None else str(row.gpu_instance))


def table(uses: Sequence[Use], glyphs: Glyphs) -> list[Line]:
    """A heading and a line for each use; those that are not watched are dim.

    Args:
        uses: In the order in which they are shown; one at least.
    """
    columns = [*_COLUMNS]
    columns += [_INSTANCE] if any(gpu.mig_enabled for gpu, _ in uses) else []
    longest = max(len(_user(row, glyphs)) for _, row in uses)
    user = max(_USER_LEAST, min(longest, _USER_MOST))
    titles = "".join(fit(column.title, column.width, right=True) for column in columns)
    head: Line = ((f" {titles}  {fit('USER', user)}  COMMAND", "head"),)
    return [head, *(_line(use, columns, user, glyphs) for use in uses)]


def _user(row: GpuProcess, glyphs: Glyphs) -> str:
    return glyphs.shown(row.user) or "?"


def _line(use: Use, columns: Sequence[_Column], user: int, glyphs: Glyphs) -> Line:
    gpu, row = use
    cells = "".join(fit(column.text(gpu, row), column.width, right=True) for column in columns)
    who = glyphs.clip(_user(row, glyphs), user)
    inside = f"[{glyphs.shown(row.container)}] " if row.container else ""
    command = _without_folder(row.command) or row.name
    shown = glyphs.shown(command) or "unknown: not visible in /proc"
    return (
        (f" {cells}", "" if row.watched else "dim"),
        (f"  {fit(who, user)}  ", "dim"),
        (inside, "faint"),
        (shown, "" if command else "unknown"),
    )


def _without_folder(command: str) -> str:
    """The command line without the folder of its program, which says least and is longest."""
    program, space, rest = command.partition(" ")
    return program.rpartition("/")[2] + space + rest
