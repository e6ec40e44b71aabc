"""Attaches the probes, and closes many links at once, each of which the kernel closes slowly."""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import struct
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from probes.code import communicators, elf, libraries, parsing
from probes.code.cookies import OWN_LINK
from probes.ebpf import attach_lock, attach_perf, bpf_timers, bpfcall, degradation
from probes.ebpf.degradation import Reach, within
from probes.ebpf.loader import OPTIONAL, ProbeError, Programs
from probes.files import untrusted_files
from probes.process import privileges
from probes.process.privileges import Capability


def close_all(descriptors: Sequence[int]) -> None:
    """Returns when all are closed: in parallel as far as threads are to be had, else one after the other."""
    waiting = deque(descriptors)
    closed = threading.Semaphore(0)

    def work() -> None:
        with suppress(IndexError):
            while True:
                descriptor = waiting.popleft()
                with suppress(OSError):
                    os.close(descriptor)
                closed.release()

    # not threading.Thread: where memory is short its start waits for ever for a thread that has ended
    with suppress(RuntimeError, MemoryError):
        for _ in descriptors[1:]:
            _thread.start_new_thread(work, ())
    work()
    for _ in descriptors:
        closed.acquire()


# Attaches the loaded programs: scheduler tracepoints once, uprobes for each library file.

_NO_DESCRIPTORS = "too few open files are allowed: start gputop again with a higher limit (ulimit -n)"
_PERF_ONLY = "there are no multi-uprobe links (Linux 6.6, or GPUTOP_ATTACH=perf), and perf's uprobes"


@dataclass(frozen=True, slots=True)
class Attached:
    """A library whose functions are probed."""

    target: libraries.Target
    build_id: str
    symbols: int

    @property
    def facts(self) -> dict[str, str | int]:
        """The library's entry in the header of a session."""
        target = self.target
        return {
            "path": target.shown,
            "build_id": self.build_id,
            "layer": target.layer,
            "symbols": self.symbols,
        }


@dataclass(slots=True)
class _Library:
    """A library's probes, and the links that attach some of them."""

    target: libraries.Target
    build_id: str
    probes: list[libraries.Probe]
    file: untrusted_files.File
    links: list[int] = field(default_factory=list)
    beside: list[int] = field(default_factory=list)  # that stay when more or less is traced


class Attachments:
    """Owns all links. Closing detaches everything; links close in parallel (0.12 s instead of 0.7 s).

    Attributes:
        put_off: Files that could not be read in time, as the reader reports; they may be attached to later.

    Raises:
        ProbeError: The kernel has neither multi-uprobe links nor perf's uprobes, or hides them.
    """

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._pmu: attach_perf.Pmu | None = None
        self._detacher: attach_perf.Detacher | None = None
        if not programs.multi:
            self._pmu = _read_pmu()
            self._detacher = attach_perf.Detacher(programs.maps["stopped"])
        self._links: list[int] = []
        self._of: dict[tuple[int, int], _Library] = {}  # probed by multi-uprobe links
        self._reach = Reach.ALL
        self._own: tuple[int, ...] = ()  # processes with links of their own; else links are the machine's
        self._owned: set[int] = set()  # those links
        self._attaching = threading.RLock()
        self._seen: dict[tuple[int, int], Attached | str] = {}
        self.put_off: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def attached(self) -> list[Attached]:
        """The libraries that are probed now."""
        return [entry for entry in self._seen.values() if isinstance(entry, Attached)]

    @property
    def refusals(self) -> list[str]:
        """Libraries that could not be probed, a sentence each."""
        return [entry for entry in self._seen.values() if isinstance(entry, str)]

    @property
    def helper_pid(self) -> int | None:
        """The process that detaches after gputop, where there is one."""
        return self._detacher.pid if self._detacher is not None else None

    @property
    def reduced(self) -> str:
        """Why not all functions are traced, in one sentence; empty when they are."""
        if self._programs.multi:
            return ""
        return (
            "without multi-uprobe links (Linux 6.6) only the functions that totals and proofs of idleness "
            "need are traced"
        )

    def beyond(self, capabilities: Collection[int]) -> frozenset[Capability]:
        """The rights, beside these capabilities, that attaching was tried to need. Raises OSError."""
        if not {Capability.BPF, Capability.PERFMON} <= privileges.held():
            return frozenset({Capability.SYS_ADMIN})  # it stands for both
        if self._pmu is None:
            return frozenset()
        with privileges.only(capabilities):
            enough = attach_perf.is_allowed(self._pmu)
        return frozenset() if enough else frozenset({Capability.SYS_ADMIN})

    def attach_scheduler(self) -> None:
        """Attaches the raw tracepoints.

        Raises:
            ProbeError: The kernel refuses.
        """
        self.attach_tracepoints(self._programs.tracepoints)

    def attach_tracepoints(self, programs: Mapping[str, int]) -> None:
        """Attaches programs, by file descriptor, to the raw tracepoints that they are named for.

        Raises:
            ProbeError: The kernel refuses.
        """
        for name, program in programs.items():
            try:
                knows = name in self._programs.typed and program == self._programs.tracepoints[name]
                self._keep(bpfcall.attach_raw_tracepoint(program, "" if knows else name))
            except OSError as error:
                if name in OPTIONAL and error.errno == errno.ENOENT:
                    continue
                raise ProbeError(f"the kernel refuses tracepoint {name}: {error.strerror}") from error

    def attach(self, targets: Iterable[libraries.Target]) -> list[Attached]:
        """Attaches to library files that were not seen before; returns the new ones.

        A file that cannot be probed is remembered as a refusal and not tried again.
        """
        fresh, waited = [], False
        with self._attaching, contextlib.ExitStack() as turn:
            for target in targets:
                if target.identity in self._seen:
                    continue
                if self._pmu is not None and not waited:
                    turn.enter_context(attach_lock.turn())
                    waited = True
                try:
                    attached = self._attach(target)
                except (OSError, elf.ElfError) as error:
                    if isinstance(error, OSError) and error.errno == errno.ETIMEDOUT:
                        self.put_off.add(target.identity)
                        continue
                    self._seen[target.identity] = f"{target.shown} cannot be probed: {_explain(error)}"
                    continue
                self._seen[target.identity] = attached
                fresh.append(attached)
        return fresh

    def _attach(self, target: libraries.Target) -> Attached:
        # read and probed by one descriptor: a path can lead to another file the next time
        with untrusted_files.opened(target.path, target.identity) as file:
            probes, build_id = parsing.probes_of(target, file)
            if self._pmu is not None:
                probes = degradation.selection(probes)
            else:
                # the way to it may be that of a process which ends, and its place another file's
                held = untrusted_files.File(os.dup(file.descriptor))
                self._of[target.identity] = _Library(target, build_id, probes, held)
                probes = within(probes, target.layer, self._reach)
            links = self._attach_all(file, probes)
            if self._pmu is None:
                self._of[target.identity].links = links
        return Attached(target, build_id, len(probes))

    def _attach_all(self, file: untrusted_files.File, probes: list[libraries.Probe]) -> list[int]:
        """Both programs at the places of these functions; the links, where they are the caller's to close."""
        uprobes, links = self._programs.uprobes, []
        rare = [probe for probe in probes if communicators.is_one(probe.cookie)]
        calls = [probe for probe in probes if not communicators.is_one(probe.cookie)]
        # returns first: a call that is under way then ends without a start and is ignored
        pairs = [("on_joined", rare, True), ("on_joining", rare, False)]
        if not self._programs.sessions:
            pairs = [("on_return", calls, True), ("on_entry", calls, False), *pairs]
        else:
            links += self._attach_sessions(file, calls)
        for name, chosen, on_return in pairs:
            if chosen:
                links.append(self._attach_at(uprobes[name], file, *_places(chosen), on_return=on_return))
        return [link for link in links if link is not None]

    def _attach_sessions(self, file: untrusted_files.File, calls: list[libraries.Probe]) -> list[int | None]:
        if not calls:
            return []
        program, (offsets, cookies) = self._programs.uprobes["on_call"], _places(calls)
        if not self._own:
            return [self._attach_at(program, file, offsets, cookies, session=True)]
        links: list[int | None] = []
        own = [cookie | OWN_LINK for cookie in cookies]
        for pid in self._own:
            with contextlib.suppress(ProcessLookupError):
                links.append(self._attach_at(program, file, offsets, own, session=True, pid=pid))
        self._owned.update(link for link in links if link is not None)
        return links

    def narrow(self, pids: tuple[int, ...]) -> None:
        """Probes calls in these processes alone, not in their children, or in all. Before `attach`.

        It needs sessions. Rarely called functions (communicators, names of kernels) are probed in all
        processes.

        Raises:
            OSError: The kernel refuses.
        """
        self._own = pids
        self._hear(own=bool(pids))

    def _hear(self, *, own: bool) -> None:
        """Chooses whose entries of calls count: those of processes' own links, or of the machine's."""
        bpfcall.update(self._programs.maps["own_links"], struct.pack("<I", 0), struct.pack("<I", own))

    def widen(self) -> list[str]:
        """Probes calls in all processes from now on; each call counts once, also those under way.

        The links of processes stay for the ends of such calls, until ``part``.

        Returns:
            Libraries that the kernel refuses to probe again: a sentence each.

        Raises:
            OSError: The kernel refuses.
        """
        lost = []
        with self._attaching:
            pids, self._own = self._own, ()
            if not pids:
                return []
            for library in self._of.values():
                probes = within(library.probes, library.target.layer, self._reach)
                calls = [probe for probe in probes if not communicators.is_one(probe.cookie)]
                try:
                    wide = self._attach_sessions(library.file, calls)
                except OSError as error:
                    lost.append(f"{library.target.shown} is not probed any more: {_explain(error)}")
                    continue
                library.links += [link for link in wide if link is not None]
            self._hear(own=False)
        return lost

    def part(self) -> None:
        """Closes the links that ``widen`` has left."""
        with self._attaching, self._lock:
            links, self._owned = self._owned, set()
            self._links = [link for link in self._links if link not in links]
            for library in self._of.values():
                library.links = [link for link in library.links if link not in links]
        close_all([*links])

    def reduce(self, reach: Reach) -> list[str]:
        """Traces more or less of every library from now on, and of those that come.

        Calls under way are reported as abandoned, or not at all. With perf events in place of multi-uprobe
        links nothing changes: detaching would last too long.

        Returns:
            Libraries that the kernel refuses to probe again: a sentence each.
        """
        lost = []
        with self._attaching:
            before, self._reach = self._reach, reach
            for identity, library in list(self._of.items()):
                target, probes = library.target, within(library.probes, library.target.layer, reach)
                if probes == within(library.probes, target.layer, before):
                    continue
                self._drop(library)
                try:
                    library.links = self._attach_all(library.file, probes)
                    self._seen[identity] = Attached(target, library.build_id, len(probes))
                except OSError as error:
                    self._seen[identity] = f"{target.shown} cannot be probed: {_explain(error)}"
                    lost.append(f"{target.shown} is not probed again: {_explain(error)}")
        return lost

    def files(self) -> list[tuple[libraries.Target, untrusted_files.File]]:
        """The files that multi-uprobe links probe, by identity."""
        with self._lock:
            return [(one.target, one.file) for one in self._of.values()]

    def release(self, identities: Iterable[tuple[int, int]]) -> None:
        """Stops probing these files and closes them; a later one may be attached to again.

        Their links close together: one after the other each waits for the kernel.
        """
        with self._attaching:
            gone = [one for one in (self._of.pop(identity, None) for identity in identities) if one]
            for library in gone:
                self._seen.pop(library.target.identity, None)
            self._close([link for library in gone for link in (*library.links, *library.beside)])
            for library in gone:
                library.file.close()

    def _drop(self, library: _Library) -> None:
        links, library.links = library.links, []
        self._close(links)

    def _close(self, links: list[int]) -> None:
        with self._lock:
            closing = set(links).intersection(self._links)  # else closed already
            self._owned -= closing
            self._links = [link for link in self._links if link not in closing]
        close_all([*closing])

    def held(self, layer: str) -> list[tuple[tuple[int, int], untrusted_files.File, str]]:
        """Identity, file and path of the libraries of a layer that are traced by multi-uprobe links."""
        with self._lock:
            found = [(identity, one) for identity, one in self._of.items() if one.target.layer == layer]
        return [(identity, one.file, one.target.shown) for identity, one in found]

    def attach_one(
        self,
        program: int,
        file: untrusted_files.File,
        offset: int,
        cookie: int,
        *,
        on_return: bool = False,
        library: tuple[int, int] | None = None,
    ) -> int | None:
        """Attaches a program, by file descriptor, at a place of any file that is open.

        Args:
            program, file, offset, cookie, on_return: The program and its place.
            library: Library with whose probes the link ends, if any.

        Returns:
            The link, for ``detach``; None with perf events, which stay.

        Raises:
            OSError: The file cannot be probed.
        """
        with attach_lock.turn() if self._pmu is not None else contextlib.nullcontext():
            link = self._attach_at(program, file, [offset], [cookie], on_return=on_return)
        if link is not None and library is not None:
            with self._attaching:
                if (known := self._of.get(library)) is not None:
                    known.beside.append(link)
                else:  # it was let go of meanwhile
                    self._close([link])
        return link

    def detach(self, links: Iterable[int]) -> None:
        with self._attaching:
            self._close([*links])

    def start_timers(self, program: int, hertz: int, cpus: int) -> None:
        """Runs a program, by file descriptor, so many times a second on each busy CPU.

        Raises:
            OSError: The kernel refuses.
        """
        for event in bpf_timers.start(program, hertz, cpus):
            self._keep(event)

    def _attach_at(
        self,
        program: int,
        file: untrusted_files.File,
        offsets: list[int],
        cookies: list[int],
        *,
        on_return: bool = False,
        session: bool = False,
        pid: int = 0,
    ) -> int | None:
        """The multi-uprobe link, which is closed by gputop itself; None with perf events."""
        if not attach_perf.allow_descriptors(1 if self._pmu is None else len(offsets)):
            raise OSError(errno.EMFILE, _NO_DESCRIPTORS)
        path = str(file.path)
        if self._pmu is None or self._detacher is None:
            link = bpfcall.attach_uprobes(
                program, path, offsets, cookies, on_return=on_return, session=session, pid=pid
            )
            self._keep(link)
            return link
        links = attach_perf.attach(self._pmu, program, path, offsets, cookies, on_return=on_return)
        with self._lock:
            if not self._closed:
                self._detacher.keep(links)
                return None
        for link in links:
            os.close(link)
        return None

    def _keep(self, link: int) -> None:
        with self._lock:
            if not self._closed:
                self._links.append(link)
                return
        os.close(link)

    def close(self) -> None:
        """Detaches everything; returns when the last probe is gone, or with perf events before."""
        with self._lock:
            closed, self._closed = self._closed, True
            links, self._links = self._links, []
            libraries_held, self._of = list(self._of.values()), {}
        for library in libraries_held:
            library.file.close()
        if self._detacher is not None and not closed:
            self._detacher.close()
        close_all(links)


def _places(probes: list[libraries.Probe]) -> tuple[list[int], list[int]]:
    return [probe.offset for probe in probes], [probe.cookie for probe in probes]


def _read_pmu() -> attach_perf.Pmu:
    try:
        pmu = attach_perf.read_pmu()
    except (OSError, ValueError) as error:
        raise ProbeError(f"{_PERF_ONLY} are not usable: {error}") from error
    if not attach_perf.is_allowed(pmu):
        raise ProbeError(f"{_PERF_ONLY} take CAP_SYS_ADMIN on this kernel: run gputop as root")
    return pmu


def _explain(error: OSError | elf.ElfError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EINVAL:
        return "the kernel has no multi-uprobe links (needs Linux 6.6 or later): unset GPUTOP_ATTACH"
    if isinstance(error, OSError) and error.errno in (errno.EPERM, errno.EACCES):
        return "not permitted (CAP_BPF and CAP_PERFMON, or root)"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
