"""Finds the libraries of programs that come later, and attaches to them while gputop runs."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from probes import api
from probes.code import foreign, libraries, parsing
from probes.code.libraries import Runtime, Target
from probes.code.mmap_events import Mapped, MmapEvents
from probes.code.pages import SharedPages
from probes.ebpf.attach import Attachments
from probes.ebpf.quota import Quota
from probes.proc import procfs
from probes.process import in_time
from probes.process.latch import Latch
from probes.source import NOTE, PROBLEM, Sample
from probes.stacks.lines import Lines

_LOG = logging.getLogger(__name__)
PAUSE_S = 0.02  # between two looks at the kernel's records, however many come
_WAIT_S = 0.25  # at most, so that the end of the session is noticed
# A fork or an exit wakes us as well, and says nothing: hundreds a second, by anybody on the machine, are
# heard together.
EMPTY_WAKES, EMPTY_WITHIN_S = 8, 0.1
POLL_S = 1.0  # between two looks at the maps of processes, where the kernel's records do not suffice
_FULL_SCAN = 10  # every which time all processes are looked at again then
_MOST_FILES = 1 << 16  # that are remembered; what is forgotten is only looked at again


class Scanner:
    """Attaches to the libraries of processes, now and as they are mapped.

    Args:
        attachments: What attaches.
        lines: What makes lines of Python known; None where they are not asked for.
        wanted: Whether a process may be one whose libraries count.
        watched: Processes that are watched now.
        everyone: Whether ``wanted`` is every process.
        tell: Takes what is to be told, from whichever thread.
        pages: Knows files again; one that was made before rights were given up.
    """

    def __init__(
        self,
        attachments: Attachments,
        lines: Lines | None,
        wanted: Callable[[int], bool],
        watched: Callable[[], Iterable[int]],
        tell: Callable[[Sample], None],
        *,
        everyone: bool,
        pages: SharedPages | None = None,
    ) -> None:
        self._attachments = attachments
        self._lines = lines
        self._wanted = wanted
        self._watched = watched
        self._everyone = everyone
        self._tell = tell
        self._events: MmapEvents | None = None
        self._identities: set[tuple[int, int]] = set()
        self._gone: set[tuple[int, int]] = set()  # files that were not there any more when they were opened
        self._pages = pages or SharedPages()
        self._quota = Quota(lambda text: tell(Sample(PROBLEM, time.monotonic_ns(), {"text": text})))
        self._programs: dict[tuple[int, int], Runtime] = {}  # files of programs that were looked into
        self._executables: dict[int, tuple[str, Target | None]] = {}
        self._blind: set[int] = set()
        self._scans = 0
        self._behind, self._next_scan = False, 0.0  # maps are to be read, but not all the time
        self._scanned: set[int] = set()
        self._empty_wakes: deque[float] = deque(maxlen=EMPTY_WAKES)

    def begin(self, cpus: int, installed: Iterable[Target], command: Path | None) -> None:
        """Attaches to what is there: libraries that will be found, then those that are mapped."""
        try:
            self._events = self._listen(cpus)  # before the first look, so that nothing falls between
        except OSError as error:
            text = f"new programs are noticed a second late: no perf events of mappings ({error.strerror})"
            self._tell(Sample(NOTE, time.monotonic_ns(), {"text": text}))
        self._attach(sorted(installed, key=lambda target: libraries.calling_order(target.layer)))
        if command is not None and (target := libraries.program(command)) is not None:
            self._look_into(target)
        self._scan(libraries.all_pids())

    def _listen(self, cpus: int) -> MmapEvents:
        events = MmapEvents(cpus, self._lines)
        if self._lines is not None:
            self._lines.listen(events.hear)
        return events

    def run(self, stop: Latch) -> None:
        """Goes on until ``stop``; for a thread of its own. What fails is told, and it goes on."""
        in_time.hurry()
        while not stop.is_set():
            try:
                self._turn(stop)
            except Exception as error:  # a program that we have not thought of must not end the search
                _LOG.exception("a program could not be looked into")
                text = f"a program could not be looked into: {type(error).__name__}: {error}"
                self._tell(Sample(PROBLEM, time.monotonic_ns(), {"text": text}))
                stop.wait(POLL_S)
        if self._events is not None:
            self._events.close()
        self._pages.close()

    def _turn(self, stop: Latch) -> None:
        late = self._lines is not None and self._lines.turn(libraries.all_pids)
        if self._events is None:
            if not stop.wait(_WAIT_S if late else POLL_S):
                self._poll()
            return
        found, lost = self._events.wait(PAUSE_S if late else _WAIT_S)
        if found:
            self._notice(found)
        self._behind |= lost
        if self._behind and time.monotonic() >= self._next_scan:
            self._behind, self._next_scan = False, time.monotonic() + POLL_S
            self._scan(libraries.all_pids() if self._everyone else self._watched())
        if found or self._often_for_nothing():
            stop.wait(PAUSE_S)

    def _often_for_nothing(self) -> bool:
        """Whether we woke up without a mapping, as often before in a short time."""
        now = time.monotonic()
        often = len(self._empty_wakes) == EMPTY_WAKES and now - self._empty_wakes[0] < EMPTY_WITHIN_S
        self._empty_wakes.append(now)
        return often

    # -- by the kernel's records ------------------------------------------------------------

    def _notice(self, found: list[Mapped]) -> None:
        layers = {mapping: layer for mapping in found if (layer := libraries.layer(mapping))}
        self._attach(self._new(layers))
        if self._lines is not None:
            self._lines.notice(found)
        watched, driving = set(self._watched()), {one.pid for one in layers if layers[one] == api.DRIVER}
        for pid in dict.fromkeys(mapping.pid for mapping in found):
            if (pid in driving or pid in watched) and self._wanted(pid):
                self._look_at(pid, drives=pid in driving)

    def _new(self, found: Iterable[Mapped]) -> Iterator[Target]:
        for mapping in sorted(found, key=_calling_order):
            if self._wanted(mapping.pid) and (target := libraries.reach(mapping)) is not None:
                yield target

    # -- by the maps of processes -----------------------------------------------------------

    def _poll(self) -> None:
        self._scans += 1
        watched = set(self._watched())
        if not self._everyone:
            self._scan(watched)
            return
        everyone = set(libraries.all_pids())
        # who was looked at before is looked at again every tenth time: maps of a thousand processes cost
        fresh = everyone if self._scans % _FULL_SCAN == 0 else everyone - self._scanned
        self._scanned = everyone
        self._scan(fresh | watched)

    def _scan(self, pids: Iterable[int]) -> None:
        for pid in pids:
            found = sorted(libraries.mappings((pid,)), key=_calling_order)
            self._attach(filter(None, map(libraries.reach, found)))
            if any(libraries.layer(mapping) == api.DRIVER for mapping in found) and self._wanted(pid):
                self._look_at(pid, drives=True)
        for pid in self._watched():
            self._look_at(pid, drives=False)
            if self._lines is not None:
                self._lines.look_at(pid)

    # -- programs with the runtime inside ---------------------------------------------------

    def _look_at(self, pid: int, *, drives: bool) -> None:
        target = self._executable(pid)
        if target is None:
            return
        runtime = self._look_into(target)
        if runtime is not Runtime.STRIPPED or not drives or pid in self._blind:
            return
        if not any(libraries.layer(mapping) == api.RUNTIME for mapping in libraries.mappings((pid,))):
            self._blind.add(pid)
            facts = procfs.process_facts(pid)
            name = facts["name"] if facts else os.path.basename(target.shown)
            text = (
                f"runtime layer blind in process {pid} ({name}): the CUDA runtime is linked into "
                f"{target.shown}, whose symbols are stripped; its calls are seen in the driver only"
            )
            self._tell(Sample(PROBLEM, time.monotonic_ns(), {"text": text, "pid": pid}))

    def _executable(self, pid: int) -> Target | None:
        """A process's program; asked again only where the process runs another one."""
        try:
            shown = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            self._executables.pop(pid, None)
            return None
        if self._executables.get(pid, ("", None))[0] != shown:
            if len(self._executables) >= _MOST_FILES:
                self._executables.clear()
            self._executables[pid] = shown, libraries.executable(pid)
        return self._executables[pid][1]

    def _look_into(self, target: Target) -> Runtime:
        if target.identity not in self._programs:
            if len(self._programs) >= _MOST_FILES:
                self._programs.clear()
            self._programs[target.identity] = runtime = parsing.linked_runtime(target)
            if runtime is Runtime.VISIBLE:
                self._attach([target])
        return self._programs[target.identity]

    # -- both -------------------------------------------------------------------------------

    def _attach(self, targets: Iterable[Target]) -> None:
        known = len(self._attachments.refusals)
        now = time.monotonic_ns()
        fresh = self._attachments.attach(self._distinct(targets))
        if fresh and self._lines is not None:
            self._lines.name_kernels()
        for entry in fresh:
            text = f"{entry.symbols} functions of {entry.target.shown} are traced"
            _LOG.info("%s", text)
            self._tell(Sample(NOTE, now, {"text": text, "layer": entry.target.layer}))
        for text in self._attachments.refusals[known:]:
            _LOG.warning("%s", text)
            self._tell(Sample(PROBLEM, now, {"text": text}))

    def _distinct(self, targets: Iterable[Target]) -> Iterator[Target]:
        """Each file once, also one that several containers show under devices of their own."""
        for target in targets:
            if target.identity in self._identities:
                continue
            parsing.look_ahead_at(target)
            try:
                file = foreign.opened(target.path, target.identity)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise  # it is not the file's fault: told, and it goes on with the others
                # what went with a process is not one that cannot be probed, for processes to come
                # and of one that kept the reader waiting it is told already
                if error.errno in (errno.ENOENT, errno.ESTALE):
                    self._look_again(target)
                elif error.errno not in (errno.ESRCH, errno.ETIMEDOUT):
                    yield target
                continue
            with file:
                if len(self._identities) >= _MOST_FILES:
                    self._identities.clear()
                self._identities.add(target.identity)
                if self._quota.admits(file.owner) and not self._pages.known(file):
                    self._quota.take(file.owner)
                    yield replace(target, path=file.path)

    def _look_again(self, target: Target) -> None:
        """A file was taken away between two looks: once more, by its mapping, if that is still there."""
        if target.identity in self._gone:
            return
        if len(self._gone) >= _MOST_FILES:
            self._gone.clear()
        self._gone.add(target.identity)
        libraries.forget(target.identity)
        self._behind = True


def _calling_order(mapping: Mapped) -> int:
    return libraries.calling_order(libraries.layer(mapping))
