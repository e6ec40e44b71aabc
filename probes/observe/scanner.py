"""Finds the libraries of programs that come later, and attaches to them while gputop runs."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from probes import api
from probes.code import interpreter, libraries, parsing
from probes.code.libraries import Runtime, Target
from probes.ebpf import quota
from probes.ebpf.attacher import Attachments
from probes.files import file_reader, untrusted_files
from probes.files.mmap_events import Mapped, MmapEvents
from probes.files.shared_pages import SharedPages
from probes.files.untrusted_files import Identity
from probes.observe.fair_queue import Turns
from probes.proc import procfs
from probes.process import privileges, realtime, users
from probes.process.privileges import Capability
from probes.process.realtime import Latch
from probes.source import NOTE, PROBLEM, Sample
from probes.stacks.line_tracker import Lines

_LOG = logging.getLogger(__name__)
PAUSE_S = 0.02  # between two readings of the kernel's records, however many come
_WAIT_S = 0.25  # at most, so that the end of the session is noticed
# A fork or an exit wakes the scanner as well, without a mapping: hundreds a second, by any user of the
# machine, are read together.
EMPTY_WAKES, EMPTY_WITHIN_S = 8, 0.1
POLL_S = 1.0  # between two readings of processes' maps, where the kernel's records do not suffice
_FULL_SCAN = 10  # every which time all processes are read again then
_MOST_DEVICES = 64  # by which one file is mapped, and remembered
_GONE = " (deleted)"  # the kernel's suffix of a removed file's path
MOST_FILES = 1 << 14  # that are remembered; a dropped one is only read again
MOST_PROCESSES = 4096  # likewise
# a user has a few environments with three libraries each; more are files that only have their names
MOST_OF_ONE_USER = 64
# each costs descriptors and time to attach to, also where a user builds them by the hundred
MOST_OF_ROOT = 512
AT_ONCE = 4  # mappings of a process that are read before others have their turn
_SWEEP_S, _SWEEP_SHARE = 5.0, 0.01  # between two readings of all mappings, and their share of a core
_SLICE_S = 0.1  # of work, before new records are read
_BEGIN_S = 5.0  # for files mapped at the start; the rest follows while gputop runs


@dataclass(frozen=True, slots=True)
class _Work:
    """Some mappings of a process, callers first; with its program or without."""

    pid: int
    found: tuple[Mapped, ...]
    drives: bool


class Scanner:
    """Attaches to the libraries of processes, now and as they are mapped.

    Args:
        attachments: Attaches the probes.
        lines: Finds lines of Python; None where they are not requested.
        wanted: True of a process whose libraries may count.
        watched: Processes that are watched now.
        everyone: ``wanted`` is true of every process.
        report: Called with each sample, from any thread.
        pages: Recognises files; made before rights are given up.
    """

    def __init__(
        self,
        attachments: Attachments,
        lines: Lines | None,
        wanted: Callable[[int], bool],
        watched: Callable[[], Iterable[int]],
        report: Callable[[Sample], None],
        *,
        everyone: bool,
        pages: SharedPages | None = None,
    ) -> None:
        self.attachments = attachments
        self._lines = lines
        self._wanted = wanted
        self._watched = watched
        self._everyone = everyone
        self.report = report
        self.events: MmapEvents | None = None
        self.identities: set[Identity] = set()
        self._gone: set[Identity] = set()  # files that were not there any more when they were opened
        self.pages = pages or SharedPages()
        self.quota = quota.Quota(
            "libraries",
            MOST_OF_ONE_USER,
            MOST_OF_ROOT,
            lambda text: report(Sample(PROBLEM, time.monotonic_ns(), {"text": text})),
        )
        self._turns: Turns[_Work] = Turns()
        self._sweep_at = time.monotonic() + _SWEEP_S
        self._unmapped = quota.Unmapped()
        # libraries as processes list them: a file system may show another device and number
        self._mapped_as: dict[Identity, set[Identity]] = {}
        self._pinned: set[Identity] = set()  # installed libraries: programs to come map them
        # files that are others under a device of their own, and those
        self.aliases: dict[Identity, Identity] = {}
        self._programs: dict[Identity, Runtime] = {}  # files of programs that were looked into
        self.executables: dict[int, tuple[str, Target | None]] = {}
        self._blind: set[int] = set()
        self._scans = 0
        self._behind, self._next_scan = False, 0.0  # maps are to be read, but not all the time
        self._scanned: set[int] = set()
        self._empty_wakes: deque[float] = deque(maxlen=EMPTY_WAKES)

    def begin(self, cpus: int, installed: Iterable[Target], command: Path | None) -> None:
        """Attaches to libraries: those that will be found, then those that are mapped."""
        try:
            self.events = self._listen(cpus)  # before the first look, so that nothing falls between
        except OSError as error:
            text = f"new programs are noticed a second late: no perf events of mappings ({error.strerror})"
            self.report(Sample(NOTE, time.monotonic_ns(), {"text": text}))
        first = sorted(installed, key=lambda target: libraries.calling_order(target.layer))
        self._pinned = {target.identity for target in first}
        self.attach(first)
        if command is not None and (target := libraries.program(command)) is not None:
            self._look_into(target, 0)
        self._scan(libraries.all_pids())
        self.work(_BEGIN_S)

    def _listen(self, cpus: int) -> MmapEvents:
        events = MmapEvents(cpus, self._lines)
        if self._lines is not None:
            self._lines.listen(events.hear)
        return events

    def run(self, stop: Latch) -> None:
        """Works until ``stop``, in a thread of its own. Failures are reported, and it goes on."""
        realtime.hurry()
        while not stop.is_set():
            try:
                self.turn(stop)
            except Exception as error:  # an unforeseen program must not end the search
                _LOG.exception("a program could not be inspected")
                text = f"a program could not be inspected: {type(error).__name__}: {error}"
                self.report(Sample(PROBLEM, time.monotonic_ns(), {"text": text}))
                stop.wait(POLL_S)
        if self.events is not None:
            self.events.close()
        self.pages.close()

    def turn(self, stop: Latch) -> None:
        late = self._lines is not None and self._lines.turn(libraries.all_pids)
        self.work(_SLICE_S)
        if (now := time.monotonic()) >= self._sweep_at:
            began_s = time.thread_time()
            self.sweep()
            self._sweep_at = now + max(_SWEEP_S, (time.thread_time() - began_s) / _SWEEP_SHARE)
        reader = file_reader.current()
        self._behind |= reader is not None and reader.abandoned.is_due()
        if self.events is None:
            if not self._turns and not stop.wait(_WAIT_S if late else POLL_S):
                self._poll()
            return
        found, lost = self.events.wait(0.0 if self._turns else PAUSE_S if late else _WAIT_S)
        if found:
            self.notice(found)
        self._behind |= lost
        if self._behind and time.monotonic() >= self._next_scan:
            self._behind, self._next_scan = False, time.monotonic() + POLL_S
            self._scan(libraries.all_pids() if self._everyone else self._watched())
        if not self._turns and (found or self._often_for_nothing()):
            stop.wait(PAUSE_S)

    def _often_for_nothing(self) -> bool:
        """True if it woke up without a mapping, as often before in a short time."""
        now = time.monotonic()
        often = len(self._empty_wakes) == EMPTY_WAKES and now - self._empty_wakes[0] < EMPTY_WITHIN_S
        self._empty_wakes.append(now)
        return often

    # -- by the kernel's records ------------------------------------------------------------

    def notice(self, found: list[Mapped]) -> None:
        """Has the mapped files of processes scanned."""
        of: dict[int, list[Mapped]] = {}
        other = []
        for mapping in found:
            if libraries.layer(mapping) or interpreter.may_be(libraries.file_name(mapping.path)):
                of.setdefault(mapping.pid, []).append(mapping)
            else:
                other.append(mapping)
        if self._lines is not None:
            self._lines.notice(other)
        for pid, mappings in of.items():
            self._put(pid, mappings)
        for pid in {mapping.pid for mapping in other}.intersection(self._watched()):
            if pid not in of:
                self._put(pid, ())

    def _put(self, pid: int, found: Iterable[Mapped]) -> None:
        """Has a process scanned at its user's turn, some mappings at a time."""
        if not self._wanted(pid):
            return
        rest = sorted(found, key=lambda mapping: libraries.calling_order(libraries.layer(mapping)))
        user = users.of(pid)
        drives = any(libraries.layer(mapping) == api.DRIVER for mapping in rest)
        for first in range(0, max(len(rest), 1), AT_ONCE):
            part = tuple(rest[first : first + AT_ONCE])
            self._turns.put(user, _Work(pid, part, drives and first + AT_ONCE >= len(rest)))

    # -- turns of users ---------------------------------------------------------------------

    def work(self, seconds: float) -> None:
        """Does waiting work, for so long; the user with the least so far goes first."""
        until = time.monotonic() + seconds
        while (turn := self._turns.pop()) is not None:
            user, work = turn
            began = time.monotonic()
            try:
                self._serve(user, work)
            finally:
                now = time.monotonic()
                self._behind |= self._turns.charge(user, now - began)
            if now >= until:
                return

    def _serve(self, user: int, work: _Work) -> None:
        if self.quota.admits(user):
            self.attach(self._reached(work.found), user)
        if self._lines is not None:
            self._lines.notice(work.found)
        if work.drives or work.pid in self._watched():
            self._look_at(work.pid, drives=work.drives)

    def _reached(self, found: Iterable[Mapped]) -> Iterator[Target]:
        for mapping in found:
            if (target := libraries.reach(mapping)) is not None:
                known = self._mapped_as.setdefault(target.identity, set())
                if len(known) < _MOST_DEVICES:
                    known.add(mapping.file)
                yield target

    # -- by the maps of processes -----------------------------------------------------------

    def _poll(self) -> None:
        self._scans += 1
        watched = set(self._watched())
        if not self._everyone:
            self._scan(watched)
            return
        everyone = set(libraries.all_pids())
        # known processes are read again every tenth time: maps of a thousand processes cost
        fresh = everyone if self._scans % _FULL_SCAN == 0 else everyone - self._scanned
        self._scanned = everyone
        self._scan(fresh | watched)

    def _scan(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if found := list(libraries.mappings((pid,))):
                self._put(pid, found)
        for pid in self._watched():
            self._look_at(pid, drives=False)
            if self._lines is not None:
                self._lines.look_at(pid)

    # -- programs with the runtime inside ---------------------------------------------------

    def _look_at(self, pid: int, *, drives: bool) -> None:
        target = self.executable_of(pid)
        if target is None:
            return
        runtime = self._look_into(target, users.of(pid))
        if runtime is not Runtime.STRIPPED or not drives or pid in self._blind:
            return
        if not any(libraries.layer(mapping) == api.RUNTIME for mapping in libraries.mappings((pid,))):
            if len(self._blind) >= MOST_PROCESSES:
                self._blind.clear()
            self._blind.add(pid)
            facts = procfs.process_facts(pid)
            name = facts["name"] if facts else os.path.basename(target.shown)
            text = (
                f"runtime layer blind in process {pid} ({name}): the CUDA runtime is linked into "
                f"{target.shown}, whose symbols are stripped; its calls are seen in the driver only"
            )
            self.report(Sample(PROBLEM, time.monotonic_ns(), {"text": text, "pid": pid}))

    def executable_of(self, pid: int) -> Target | None:
        """A process's program; read again only where the process runs another one."""
        try:
            shown = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            self.executables.pop(pid, None)
            return None
        if self.executables.get(pid, ("", None))[0] != shown:
            while len(self.executables) >= MOST_PROCESSES:  # those that ended long ago are the first
                del self.executables[next(iter(self.executables))]
            self.executables[pid] = shown, libraries.executable(pid)
        return self.executables[pid][1]

    def _look_into(self, target: Target, user: int) -> Runtime:
        if target.identity in self._programs:
            return self._programs[target.identity]
        runtime = parsing.linked_runtime(target)
        if runtime is None:  # not now
            return Runtime.ABSENT
        if len(self._programs) >= MOST_FILES:
            self._programs.clear()
        self._programs[target.identity] = runtime
        if runtime is Runtime.VISIBLE:
            self.attach([target], user)
        return runtime

    # -- both -------------------------------------------------------------------------------

    def attach(self, targets: Iterable[Target], user: int = 0) -> None:
        """Attaches to files that a program of a user has mapped, or that are installed."""
        known = len(self.attachments.refusals)
        now = time.monotonic_ns()
        fresh = self.attachments.attach(self._distinct(targets, user))
        self.identities -= self.attachments.put_off
        self.attachments.put_off.clear()
        if fresh and self._lines is not None:
            self._lines.name_kernels()
        for entry in fresh:
            text = f"{entry.symbols} functions of {entry.target.shown} are traced"
            _LOG.info("%s", text)
            self.report(Sample(NOTE, now, {"text": text, "layer": entry.target.layer}))
        for text in self.attachments.refusals[known:]:
            _LOG.warning("%s", text)
            self.report(Sample(PROBLEM, now, {"text": text}))

    def _distinct(self, targets: Iterable[Target], user: int) -> Iterator[Target]:
        """Each file once, also one that several containers show under devices of their own."""
        for target in targets:
            identity = target.identity
            if identity in self.identities or not self.quota.admits(user, identity):
                continue
            parsing.look_ahead_at(target)
            try:
                file = untrusted_files.opened(target.path, identity)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise  # it is not the file's fault: reported, and the others follow
                # what went with a process is not one that cannot be probed, for processes to come
                # and of one that kept the reader waiting it is reported already
                if error.errno in (errno.ENOENT, errno.ESTALE):
                    self._look_again(target)
                elif error.errno not in (errno.ESRCH, errno.ETIMEDOUT):
                    self.quota.acquire(user, identity)
                    yield target
                continue
            with file:
                if len(self.identities) >= MOST_FILES:
                    self.identities.clear()
                    self.aliases.clear()
                self.identities.add(identity)
                self.quota.acquire(user, identity)
                if (original := self.pages.original(file)) is not None:
                    self.aliases[identity] = original
                else:
                    yield replace(target, path=file.path)

    def sweep(self) -> None:
        """Releases files that no process maps, but for a few of a kind: else each costs descriptors for ever.

        Kept are those that are mapped, those that are installed, and the few that were mapped last. One
        that is mapped again is attached to again. Without the right to all mappings none is released.
        """
        held = {target.identity: target for target, _file in self.attachments.files()}
        lines = self._lines.probed() if self._lines is not None else []
        if max(len(held) - len(self._pinned), len(self.aliases), len(lines)) <= quota.FEW:
            return
        if Capability.SYS_PTRACE not in privileges.held():
            return
        now = time.monotonic()
        also = {target.shown for target in held.values() if target.static}.union(lines)
        also = {path.removesuffix(_GONE) for path in also}
        mapped = list(libraries.mappings(libraries.all_pids(), also))
        files, paths = {one.file for one in mapped}, {one.path.removesuffix(_GONE) for one in mapped}
        used = {one for one, target in held.items() if self._is_mapped(one, files, target.shown, paths)}
        ended = [alias for alias in self.aliases if not self._is_mapped(alias, files)]
        used |= {original for alias, original in self.aliases.items() if alias not in ended}
        unused = self._unmapped.of(held.keys() - self._pinned, used, now)
        self._release([held[identity] for identity in unused])
        for identity in ended:
            del self.aliases[identity]
            self._forget(identity)
        if self._lines is not None:
            self._lines.sweep(files)

    def _is_mapped(
        self, identity: Identity, files: set[Identity], shown: str = "", paths: Collection[str] = ()
    ) -> bool:
        """True if processes list it; of a file not found by a list, devices may differ: by its path."""
        if (listed := self._mapped_as.get(identity)) is not None:
            return not listed.isdisjoint(files)
        return identity in files or shown.removesuffix(_GONE) in paths

    def _release(self, targets: list[Target]) -> None:
        self.attachments.release(target.identity for target in targets)
        for target in targets:
            _LOG.info("no process maps %s: it is not traced any more", target.shown)
            self.pages.forget(target.identity)
            self._programs.pop(target.identity, None)
            self._forget(target.identity)

    def _forget(self, identity: Identity) -> None:
        self._behind |= self.quota.release(identity)  # there is room for one that was left out
        self.identities.discard(identity)
        self._mapped_as.pop(identity, None)
        libraries.forget(identity)

    def _look_again(self, target: Target) -> None:
        """Tries a file once more that was replaced meanwhile: by its mapping, if that is still there."""
        if target.identity in self._gone:
            return
        if len(self._gone) >= MOST_FILES:
            self._gone.clear()
        self._gone.add(target.identity)
        libraries.forget(target.identity)
        self._behind = True
