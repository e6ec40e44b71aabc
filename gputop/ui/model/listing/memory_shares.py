"""Columns of the process table: a process's share of the GPUs' and of the machine's memory."""

from __future__ import annotations

from collections.abc import Callable

from gputop.engine.frame import Frame, ProcessRow
from gputop.format import format_percent
from gputop.ui.model.look import Span
from gputop.ui.model.table import Column, Context


class MemorySizes:
    """The memory sizes of the frame shown."""

    def __init__(self) -> None:
        self._gpus: dict[int, int] = {}
        self._host: int | None = None

    def show(self, frame: Frame) -> None:
        """Store the sizes of a frame."""
        self._gpus = {gpu.index: gpu.memory_total_bytes for gpu in frame.gpus if gpu.memory_total_bytes}
        self._host = frame.host.memory_total_bytes if frame.host else None

    def of_gpus(self, row: ProcessRow) -> float | None:
        """Return a process's share of its GPUs' memory, in percent."""
        if row.gpu_memory_bytes is None or not row.gpus:
            return None
        size = sum(self._gpus.get(index, 0) for index in row.gpus)
        return 100 * row.gpu_memory_bytes / size if size else None

    def of_host(self, row: ProcessRow) -> float | None:
        """Return a process's resident share of the machine's memory, in percent."""
        return 100 * row.rss_bytes / self._host if row.rss_bytes is not None and self._host else None


def share_columns(sizes: MemorySizes) -> dict[str, Column[ProcessRow]]:
    """Return each column by the key of the column before it."""
    return {
        "memory": _column("gpu_memory_share", "GMEM%", sizes.of_gpus, 12),
        "rss": _column("memory_share", "MEM%", sizes.of_host, 11),
    }


def _column(
    key: str, title: str, share: Callable[[ProcessRow], float | None], keep: int
) -> Column[ProcessRow]:
    def cell(row: ProcessRow, _context: Context, _width: int) -> Span:
        value = share(row)
        return ("-", "unknown") if value is None else (format_percent(value), "")

    def order(row: ProcessRow) -> float:
        value = share(row)
        return -1.0 if value is None else value

    return Column(key, title, len(title), cell, order, keep=keep)
