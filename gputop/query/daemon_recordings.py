"""The present, through the daemon: stretches of it become recordings in a folder of this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gputop.engine.engine import Engine
from gputop.engine.frame import GpuRow
from gputop.errors import CommandError
from gputop.query.catalogue import Catalogue, Recording
from gputop.query.reply import page
from gputop.serve.clients.client import RemoteSource
from probes.ebpf.loader import ProbeError
from probes.source import Item
from replay.coding.file_format import SessionError
from replay.writer import SessionWriter

MOST_S: Final = 120.0
_STATUS_S: Final = 3.0  # ticks come once a second
_KEPT: Final = 16  # stretches; the oldest goes


@dataclass
class Live:
    """The daemon at a socket, as this user sees it."""

    socket: str  # its path
    folder: str  # for the recordings; one of those that may be queried
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _count: int = 0

    def record(self, seconds: float) -> str:
        """Observe for a while; return the recording's path.

        Raises:
            CommandError: No daemon answers, or there was nothing.
        """
        source = RemoteSource(self.socket)
        path = self._next_path()
        try:
            writer = SessionWriter(path, source.header, private=bool(source.header.get("private")))
            try:
                for item in _for(source, min(max(seconds, 1.0), MOST_S)):
                    writer.write(item)
            finally:
                writer.close()
        except SessionError as error:
            raise CommandError(str(error)) from error
        return path

    def _next_path(self) -> str:
        with self._lock:
            self._count += 1
            names = sorted(os.listdir(self.folder))
            for name in names[: max(len(names) - _KEPT + 1, 0)]:
                os.unlink(os.path.join(self.folder, name))
            return os.path.join(self.folder, f"live-{time.strftime('%H%M%S')}-{self._count:04d}.msgpack")

    def gpus(self) -> tuple[GpuRow, ...]:
        """The GPUs now. Raises as ``record``."""
        source = RemoteSource(self.socket)
        engine, seen = Engine(source.header), False
        for item in _for(source, _STATUS_S):
            seen |= engine.feed(item)
        if not seen:
            raise CommandError("the daemon sent nothing within three seconds: see its log")
        return engine.frame().gpus

    def observed(self, catalogue: Catalogue, seconds: float, pids: Sequence[int] | None) -> str:
        """Return the reply of the tool ``observe``: the session's id, and its verdict."""
        path = self.record(seconds)
        (id,) = (id for id, known in catalogue.ids().items() if os.path.samefile(known, path))
        return page(_facts(catalogue.get(id), pids), "next", ["get_check", "get_causal_chains"])


def _facts(recording: Recording, pids: Sequence[int] | None) -> dict[str, object]:
    found = recording.inspected()
    return {
        "session": recording.id,
        "duration_s": round(found["duration_ns"] / 1e9, 3),
        "processes": found["processes"],
        "lost_events": found["lost"]["events"],
        "verdict": recording.report(pids or ()).verdict,
    }


def _for(source: RemoteSource, seconds: float) -> Iterator[Item]:
    """Yield its items for so many seconds. Raises CommandError if the daemon ends meanwhile."""
    timer = threading.Timer(seconds, source.close)
    timer.daemon = True
    timer.start()
    try:
        yield from source.items()
    except ProbeError as error:
        raise CommandError(str(error)) from error
    finally:
        timer.cancel()
        source.close()
