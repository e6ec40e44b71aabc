"""Keeps the minutes around a moment as a session file that belongs to the user of the process.

The folder is root's; no other user may read a user's file. Files are limited by process, by user and in total
size. Files beyond the limits are counted and logged; if space runs out, the oldest file of the user with most
is removed.
"""

from __future__ import annotations

import errno
import logging
import os
import pwd
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gputop.engine.tally import FileSums
from gputop.serve.clients.owners import NOBODY
from gputop.serve.clients.user_past import Past
from gputop.serve.clients.user_view import ROOT
from gputop.serve.daemon import Daemon
from gputop.serve.triggers import REQUESTED, Trigger
from probes.files.file_trust import others_on
from probes.proc.subordinate import Subordinates
from probes.source import MARKER, Sample
from replay.coding.file_format import SessionError
from replay.folders import made_folder
from replay.writer import SessionWriter

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"\d{8}-\d{6}-[a-z-]+-\d+\.msgpack\Z")
_PART = ".part"  # suffix while it is written
_HOUR_S = 3600.0
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """Limits of kept sessions."""

    before_s: float = 120.0  # seconds before the moment
    after_s: float = 30.0  # seconds after it
    every_s: float = 600.0  # shortest interval of files for a process's events, s
    an_hour: int = 12  # files of one user in an hour
    most_bytes: int = 2 << 30  # all files together


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that was kept, or is about to be."""

    uid: int
    trigger: Trigger
    due_ns: int
    also: tuple[Trigger, ...] = ()


class Keeper:
    """Accepts triggers from any thread; writes in its own."""

    def __init__(
        self, daemon: Daemon, folder: str, limits: KeepLimits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make the folder.

        Raises:
            OSError: The folder cannot be made, or other users may write there.
        """
        os.close(made_folder(folder))
        folder = os.path.realpath(folder)
        _check(folder)
        for name in os.listdir(folder):
            if name.endswith(_PART) and _NAME.match(name.removesuffix(_PART)):
                os.unlink(os.path.join(folder, name))  # of a daemon that was killed
        self._daemon, self._folder, self._limits, self._clock = daemon, folder, limits, clock
        self._lock = threading.Lock()
        self._waiting: list[KeptFile] = []
        self._newest: dict[int, float] = {}  # process -> time of its newest file
        self._hours: dict[int, deque[float]] = {}  # account -> times
        self._subordinates = Subordinates()
        self._closed = threading.Event()
        self.left_out = 0
        self.written = 0
        self.failures: deque[str] = deque(maxlen=8)
        self._thread = threading.Thread(target=self._run, name="gputop-keep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def keep(self, trigger: Trigger) -> None:
        """Keep the minutes around a moment, if the limits allow it; return at once."""
        uid = self._daemon.owners.of(trigger.pid) if trigger.pid else ROOT
        uid = ROOT if uid == NOBODY else uid
        now = self._clock()
        with self._lock:
            for place, kept in enumerate(self._waiting):
                if (due_ns := self._due_with(kept, uid, trigger)) is not None:
                    self._waiting[place] = replace(kept, also=(*kept.also, trigger)[:32], due_ns=due_ns)
                    self._newest[trigger.pid] = now
                    return
            account = self._subordinates.owner(uid)
            if not self._allowed(trigger, account, now):
                self.left_out += 1
                _LOG.info("not kept, limit reached: %s", trigger.text)
                return
            self._newest[trigger.pid] = now
            self._hours.setdefault(account, deque()).append(now)
            after = 0 if trigger.kind == REQUESTED else int(self._limits.after_s * 1e9)
            self._waiting.append(KeptFile(uid, trigger, trigger.time_ns + after))

    def _due_with(self, kept: KeptFile, uid: int, trigger: Trigger) -> int | None:
        """When the file would end that holds this event, too; None: it needs its own.

        A file holds all processes of its user, so eight ranks that stall at once need one.
        """
        if kept.uid != uid:
            return None
        if kept.trigger.pid == trigger.pid:
            return kept.due_ns
        if trigger.kind == REQUESTED or not kept.trigger.time_ns <= trigger.time_ns < kept.due_ns:
            return None
        after = int(self._limits.after_s * 1e9)
        return min(max(kept.due_ns, trigger.time_ns + after), kept.trigger.time_ns + 2 * after)

    def _allowed(self, trigger: Trigger, account: int, now: float) -> bool:
        if trigger.kind == REQUESTED:
            return True
        self._newest = {pid: at for pid, at in self._newest.items() if now - at < self._limits.every_s}
        hour = self._hours.setdefault(account, deque())
        while hour and now - hour[0] >= _HOUR_S:
            hour.popleft()
        return trigger.pid not in self._newest and len(hour) < self._limits.an_hour

    def close(self) -> None:
        """Write pending files as far as recorded, and end."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_S):
            self.turn(whatever=False)
        self.turn(whatever=True)

    def turn(self, *, whatever: bool) -> None:
        now = self._daemon.history.end_ns
        with self._lock:
            due = [kept for kept in self._waiting if whatever or kept.due_ns <= now]
            self._waiting = [kept for kept in self._waiting if kept not in due]
        for kept in due:
            try:
                self._write(kept)
            except (SessionError, OSError) as error:
                text = f"{kept.trigger.text}: could not be kept: {error}"
                self.failures.append(text)
                _LOG.warning("%s", text)

    def _write(self, kept: KeptFile) -> None:
        trigger, limits = kept.trigger, self._limits
        self.make_room()
        past = Past(
            self._daemon.history,
            self._daemon.explainer,
            kept.uid,
            trigger.time_ns - int(limits.before_s * 1e9),
            kept.due_ns,
        )
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime())
        path = os.path.join(self._folder, f"{stamp}-{trigger.kind}-{trigger.pid}.msgpack")
        writer: SessionWriter | None = None
        try:
            for item in past.items():
                if writer is None:
                    private = bool(past.header.get("private"))
                    writer = SessionWriter(path + _PART, past.header, private=private, sums=FileSums())
                    for one in (trigger, *kept.also):
                        writer.write(Sample(MARKER, one.time_ns, {"text": one.text}))
                writer.write(item)
            if writer is not None:
                writer.close()
        except BaseException:
            if writer is not None:
                with suppress(SessionError):
                    writer.close()
                with suppress(FileNotFoundError):
                    os.unlink(path + _PART)
            raise
        if writer is not None:
            os.chown(path + _PART, *_owner(kept.uid), follow_symlinks=False)  # only root writes here
            os.rename(path + _PART, path)  # readers find only complete files
            self.written += 1
            _LOG.info("kept %s: %s", path, trigger.text)

    def files(self) -> list[tuple[str, int, int, int]]:
        """Return (path, user, bytes, seconds since the epoch) of the kept files, the oldest first."""
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if _NAME.match(entry.name) and entry.is_file(follow_symlinks=False):
                    facts = entry.stat(follow_symlinks=False)
                    found.append((entry.path, facts.st_uid, facts.st_size, int(facts.st_mtime)))
        return sorted(found, key=lambda row: row[3])

    def make_room(self) -> None:
        """Remove the oldest file of the user with most, until the largest file would fit again."""
        files = self.files()
        while (
            files
            and sum(size for _, _, size, _ in files) + max(size for _, _, size, _ in files)
            > self._limits.most_bytes
        ):
            held: dict[int, int] = {}
            owners = {uid: self._subordinates.owner(uid) for _, uid, _, _ in files}
            for _, uid, size, _ in files:
                held[owners[uid]] = held.get(owners[uid], 0) + size
            most = max(held, key=lambda owner: held[owner])
            oldest = next(row for row in files if owners[row[1]] == most)
            os.unlink(oldest[0])
            _LOG.info("removed %s: the folder holds as much as it may", oldest[0])
            files.remove(oldest)


def _check(folder: str) -> None:
    """Raise unless only root can write there: files are given to users by name."""
    others = others_on(Path(folder))
    if others or os.stat(folder).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"other users can write to it: choose a folder of root's alone ({others or 'its mode'})"
        raise PermissionError(errno.EPERM, why, folder)


def _owner(uid: int) -> tuple[int, int]:
    try:
        return uid, pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid, uid
