"""Which mappings of a process that already runs may be its interpreter."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import numpy as np

from probes.code import elf, interpreter, libraries, parsing
from probes.code.interpreter import Interpreter, may_be
from probes.code.layout import (
    HANDLE_RECORD,
    LINE_RECORD,
    MAX_INTERPRETERS,
    NATIVE_DTYPE,
    PROCESS_DTYPE,
    row_bytes,
)
from probes.code.thread_states import InterpreterPlace, NoSlotError, NotYetError
from probes.ebpf import bpfcall
from probes.ebpf.attacher import Attachments
from probes.ebpf.loader import ProbeError, Programs, max_cpus
from probes.ebpf.quota import Quota, Unmapped
from probes.files import maps, untrusted_files
from probes.files.mmap_events import Hears, Mapped
from probes.proc import procfs
from probes.process import users
from probes.process.realtime import Latch
from probes.source import PROBLEM, Sample
from probes.stacks import programs
from probes.stacks.dynamic_loaders import Loaders
from probes.stacks.handles import NamingProbes
from probes.stacks.kernel_resolver import Kernels, file_finder, finder
from probes.stacks.mappings import Mappings, State
from probes.stacks.native_frames import Samples
from probes.stacks.programs import LinePrograms
from probes.stacks.resolver import Resolver, Stack
from probes.stacks.stack_samples import places_samples, stacks_sample
from probes.stacks.stackring import Inbox, StackRing, Turn


def candidates(pid: int, *, chosen: bool = False) -> Iterator[Mapped]:
    """The executable mappings of a process that may be its interpreter; none when it has ended.

    They have an interpreter's name. Where none has, the program may have one inside, if it uses CUDA or was
    ``chosen``: those of all processes are not read.
    """
    mappings = [mapping for mapping in maps.executable(pid) if mapping.path.startswith("/")]
    names = [libraries.file_name(mapping.path) for mapping in mappings]
    if not any(map(may_be, names)) and (chosen or any(map(libraries.classify, names))):
        with contextlib.suppress(OSError):
            program = os.readlink(f"/proc/{pid}/exe")
            yield from (mapping for mapping in mappings if mapping.path == program)
    yield from (mapping for mapping, name in zip(mappings, names, strict=True) if may_be(name))


# Keeps Python lines known: probes interpreters, finds those that run already, yields the stacks that come.

STACKS_A_SAMPLE = 200  # some 100 bytes a frame: far below the limit of a sample
_PATIENCE_S = 5.0  # an interpreter that is not ready by then is none
_AT_LEAST_S = 1.0  # so long it may be on the way to its library: no reason to report yet
LOAD_S = 30.0  # for a busy machine; half a second is usual
# of the processor, for the stacks of one mark: more comes later, and marks come in time
_TURN_S, LAST_TURN_S = 0.15, 2.0
LAST_S = 5.0  # of the wall, for the files that are still being read at the end: some may never be
_SWEEP_NS, _EXISTS = 2_000_000_000, 1  # the second: BPF_NOEXIST

_MOST_REPORTED = 4096  # processes whose lines are unknown: reported once
_MOST_FILES = 1 << 12  # of which it is known that they hold no interpreter
ROW_RESTS_S = 60.0  # until a row means another interpreter: stacks that name it have been resolved
MOST_OF_ONE_USER, MOST_OF_ROOT = 32, 128  # interpreters, of which all together have ``MAX_INTERPRETERS``
Identity = tuple[int, int]


class Lines(Hears):
    """One for a session. Its programs are compiled in a thread of their own, and until then it does nothing:
    ``load`` belongs to that thread, ``look_at``, ``notice`` and ``turn`` to the scanner's, ``drain`` to the
    reader's. ``report`` is called from any thread.

    Args:
        attachments, programs: What attaches the probes, and the programs that note the calls.
        wanted: Whether a process may be watched.
        pythons: Files of interpreters that will be used.
    """

    def __init__(
        self,
        attachments: Attachments,
        programs: Programs,
        wanted: Callable[[int], bool],
        report: Callable[[Sample], None],
        pythons: Iterable[Path],
    ) -> None:
        self._attachments = attachments
        self._others = programs
        self._wanted = wanted
        self._report = report
        self._pythons = pythons
        self.programs: LinePrograms | None = None
        self.inbox: Inbox | None = None
        self._begun = False
        self.rows: list[Interpreter] = []
        self._files: dict[Identity, int | str | None] = {}  # row, or why there is none; None: no interpreter
        self._waiting: dict[int, tuple[float, str]] = {}  # processes to check again: until then, and why
        self._reported: set[tuple[int, str]] = set()
        self._mappings = Mappings(self._state)
        self.resolver = Resolver(self.rows, self._mappings)
        self._samples = Samples()
        natives = self.resolver.natives
        files = file_finder(self._mappings, self._state)
        self.kernels = Kernels(finder(natives, self._state), natives.wait, files)
        self._naming = NamingProbes(attachments)
        self._row_links: dict[int, list[int]] = {}  # of rows that can be let go of
        self._mapped_as: dict[Identity, str] = {}  # files as processes map them, of which each counts
        self._unmapped = Unmapped()
        self._resting: deque[tuple[float, int]] = deque()  # rows without an interpreter, and since when
        self._loaders = Loaders(self._probe_loader, self._too_many)
        self._quota = Quota("interpreters", MOST_OF_ONE_USER, MOST_OF_ROOT, self._too_many)
        self._hear: Callable[[], None] = lambda: None
        self._swept_ns = 0
        self._gone: set[int] = set()
        self.ready = Latch()
        self._places: list[bytes] = []  # lines of threads' code, as stacks

    def load(self, loaded: LinePrograms | None = None) -> None:
        """Loads the programs, a quarter of a second; reports a refusal of the kernel."""
        try:
            loaded = loaded or programs.load(self._others)
            self._attachments.attach_tracepoints(loaded.tracepoints)
            programs.join(self._others, loaded)
            if loaded.timer is not None:
                self._attachments.start_timers(loaded.timer, programs.TIMER_HZ, max_cpus())
            self.inbox = Inbox(StackRing(loaded.maps["stacks"], programs.STACK_BYTES), self.aside)
        except (ProbeError, OSError) as error:
            text = f"lines of Python are unknown: {error}"
            self._report(Sample(PROBLEM, time.monotonic_ns(), {"text": text}))
            self.ready.set()
            return
        self.programs = loaded
        self.name_kernels()

    def name_kernels(self) -> None:
        """Probes functions that return names of kernels, in the drivers that are traced by now."""
        if self.programs is not None:
            self._naming.attach(self.programs.uprobes)

    def resume(self) -> None:
        """Looks for lines again after ``programs.part``; for any thread. Raises OSError."""
        if self.programs is not None:
            programs.join(self._others, self.programs)

    def wait(self) -> None:
        """Returns when the lines of programs that start from now on are known, or never will be."""
        self.ready.wait(LOAD_S)

    def stop(self) -> None:
        """Nothing will be known any more: ends ``wait``."""
        self.ready.set()

    def heard(self, found: Iterable[Mapped], execs: Iterable[tuple[int, int]]) -> None:
        """Keeps mappings; for any thread."""
        self._mappings.heard(found, execs, self._is_watched)

    def _is_watched(self, pid: int) -> bool:
        try:
            return bpfcall.contains(self._others.maps["procs"], struct.pack("<I", pid), 4)
        except OSError:  # unknown to the kernel
            return False

    def listen(self, hear: Callable[[], None]) -> None:
        """``hear`` makes sure that ``heard`` knows of all that was mapped until now."""
        self._hear = hear

    def missed(self, since_ns: int, until_ns: int) -> None:
        """Some of it is lost; for any thread."""
        self._mappings.missed(since_ns, until_ns)

    # -- the scanner's thread ------------------------------------------------------------------------

    def turn(self, pids: Callable[[], Iterable[int]]) -> bool:
        """Does the due work; true if more will be due soon.

        Once the programs are there, interpreters that will be used are probed, and the processes of
        ``pids`` are checked, then those again whose interpreter was not ready.
        """
        if self.programs is None:
            return not self.ready.is_set()
        if not self._begun:
            self._begun = True
            self._loaders.notice(maps.executable(os.getpid()))
            for path in self._pythons:
                with contextlib.suppress(OSError):
                    self._file(path, str(path), _identity(path))
            self._row_links.clear()  # those stay: programs to come map them
            until = time.monotonic() + _PATIENCE_S
            self._waiting |= dict.fromkeys(filter(self._wanted, pids()), (until, ""))
        for pid in list(self._waiting):
            self.look_at(pid)
        self.ready.set()
        return bool(self._waiting)

    def notice(self, mappings: Iterable[Mapped]) -> None:
        """Checks loaders, and processes that have just mapped an interpreter or CUDA."""
        mappings = list(mappings)
        if self.programs is not None:
            self._loaders.notice(mapping for mapping in mappings if self._wanted(mapping.pid))
        for mapping in mappings:
            name = libraries.file_name(mapping.path)
            if (interpreter.may_be(name) or libraries.classify(name)) and self._wanted(mapping.pid):
                self.look_at(mapping.pid)

    def look_at(self, pid: int) -> None:
        """Passes the place of this process's interpreter to the kernel, unless it is known there."""
        if self.programs is None:
            return
        self._loaders.notice(maps.executable(pid))
        now = time.monotonic()
        until, before = self._waiting.pop(pid, (now + _PATIENCE_S, ""))
        if bpfcall.contains(self.programs.maps["pythons"], struct.pack("<I", pid), PROCESS_DTYPE.itemsize):
            return
        why, again = self._find(pid)
        if again and now < until:
            self._waiting[pid] = until, why
        elif why:
            self._problem(pid, why)
        elif before and now > until - _PATIENCE_S + _AT_LEAST_S:
            self._problem(pid, before)  # it has ended meanwhile

    def _find(self, pid: int) -> tuple[str, bool]:
        """Why the interpreter of a process is not known now, if it has one, and whether that may change."""
        why = ""
        for mapping in candidates(pid, chosen=not self._others.options.watch_all):
            row = self._reach(mapping)
            if isinstance(row, str):
                return row, False
            if row is None and interpreter.may_be(libraries.file_name(mapping.path)):
                why = f"{mapping.path} does not show where its structures are: its symbols are stripped"
            if row is None or not self._holds(row, mapping):
                continue
            try:
                self._configure(pid, row, parsing.threads_of(pid, self.rows[row], mapping))
            except NotYetError:
                return "its start-up does not end", True
            except NoSlotError:
                return "where its threads keep their state is not found", True
            except OSError as error:
                closed = error.errno in (errno.EPERM, errno.EACCES)
                return "its memory is not readable" if closed else "", False
            return "", False
        return why, bool(why)

    def probed(self) -> list[str]:
        """The paths of interpreters and loaders whose probes can be removed."""
        return [*self._mapped_as.values(), *self._loaders.probed.values()]

    def sweep(self, mapped: Collection[Identity]) -> None:
        """Lets go of interpreters and loaders that no process maps, but for a few.

        Args:
            mapped: Files at the paths of ``probed`` that processes map.
        """
        now = time.monotonic()
        links = self._loaders.release(mapped, now)
        for file in self._unmapped.of(self._mapped_as, mapped, now):
            del self._mapped_as[file]
            self._quota.release(file)
            row = self._files.pop(file, None)
            if isinstance(row, int) and row not in map(self._files.get, self._mapped_as):
                links += self._row_links.pop(row)
                self._files = {file: known for file, known in self._files.items() if known != row}
                self._resting.append((now, row))
        self._attachments.detach(links)

    def _probe_loader(self, file: untrusted_files.File, offset: int) -> int | None:
        assert self.programs is not None
        return self._attachments.attach_one(self.programs.uprobes["on_loader"], file, offset, 0)

    def _state(self, pid: int) -> State | None:
        assert self.programs is not None
        content = bpfcall.element(
            self.programs.maps["natives"], struct.pack("<I", pid), NATIVE_DTYPE.itemsize
        )
        return struct.unpack("<QQ", content) if content is not None else None

    def _holds(self, row: int, mapping: Mapped) -> bool:
        """True if this mapping of the file is the one with the code."""
        place = self.rows[row].free_offset
        return mapping.offset <= place < mapping.offset + mapping.span[1] - mapping.span[0]

    def _too_many(self, text: str) -> None:
        self._report(Sample(PROBLEM, time.monotonic_ns(), {"text": text}))

    def _reach(self, mapping: Mapped) -> int | str | None:
        if mapping.file in self._files:
            return self._files[mapping.file]
        user = users.of(mapping.pid)
        if not self._quota.admits(user, mapping.file):
            return f"{mapping.path} is one of too many interpreters of its user"
        found = libraries.file_of(mapping)
        if found is None:
            return None
        row = self._file(found[0], mapping.path, found[1])
        if row is not None:
            self._quota.acquire(user, mapping.file)
        if found[1] in self._files:
            self._files[mapping.file] = row
            if row is not None and (isinstance(row, str) or row in self._row_links):
                self._mapped_as[mapping.file] = mapping.path
        return row

    def _file(self, path: Path, shown: str, identity: Identity) -> int | str | None:
        """Probes a file that was not seen before: its row, or why there is none."""
        if identity in self._files:
            return self._files[identity]
        found: int | str | None
        try:
            with parsing.interpreter_at(path, identity, shown) as (file, read):
                found = None if read is None else read.problem or self._probe(file, read)
        except elf.ElfError:
            found = None
        except OSError as error:
            found = f"{shown} cannot be probed: {error.strerror}"
            if error.errno == errno.ETIMEDOUT:
                return found  # it may be another time
        if len(self._files) >= _MOST_FILES:  # each row of the kernel's map stays as it is
            self._files = {file: row for file, row in self._files.items() if isinstance(row, int)}
        self._files[identity] = found
        return found

    def _probe(self, file: untrusted_files.File, found: Interpreter) -> int | str:
        rested = bool(self._resting) and self._resting[0][0] < time.monotonic() - ROW_RESTS_S
        row = self._resting[0][1] if rested else len(self.rows)
        if row >= MAX_INTERPRETERS or found.layout is None or self.programs is None:
            return f"more than {MAX_INTERPRETERS} interpreters"
        content = row_bytes(
            found.layout,
            runtime=found.runtime,
            code_type=found.code_type,
            run_main=found.run_main,
            code_free=found.code_free,
            state_module=found.state_module,
            state_offset=found.state_offset,
        )
        bpfcall.update(self.programs.maps["interpreters"], struct.pack("<I", row), content)
        if rested:
            self._resting.popleft()
            self.rows[row] = found
        else:
            self.rows.append(found)
        uprobes = self.programs.uprobes
        # the probe of freed code first: a line must never be that of code which had the address before
        links: list[int | None] = []
        try:
            links.append(self._attachments.attach_one(uprobes["on_code_free"], file, found.free_offset, row))
            if found.run_main_offset:
                at = found.run_main_offset
                links.append(self._attachments.attach_one(uprobes["on_python"], file, at, row))
        except OSError:
            self._attachments.detach(link for link in links if link is not None)
            self._resting.append((time.monotonic(), row))
            raise
        if None not in links:
            self._row_links[row] = [link for link in links if link is not None]
        return row

    def _configure(self, pid: int, row: int, place: InterpreterPlace) -> None:
        assert self.programs is not None
        content = np.zeros(1, PROCESS_DTYPE)
        content["serial"] = time.monotonic_ns() ^ pid << 32
        content["slot"], content["inner"], content["module"] = place.slot, place.inner, place.module
        content["code_type"], content["row"] = place.code_type, row
        pythons = self.programs.maps["pythons"]
        with contextlib.suppress(OSError):  # the kernel was faster, or there is no room
            bpfcall.update(pythons, struct.pack("<I", pid), content.tobytes(), flags=_EXISTS)
            programs.forget_places(self._others, pid)

    def _problem(self, pid: int, why: str) -> None:
        if (pid, why) in self._reported or not self._wanted(pid):
            return
        if self._others.options.watch_all and not libraries.maps_cuda(pid):
            return  # one of the machine's many programs without CUDA calls; reported when it maps CUDA
        if len(self._reported) >= _MOST_REPORTED:
            self._reported.clear()
        self._reported.add((pid, why))
        facts = procfs.process_facts(pid)
        text = f"Python lines of process {pid} ({facts['name'] if facts else '?'}) are unknown: {why}"
        self._report(Sample(PROBLEM, time.monotonic_ns(), {"text": text, "pid": pid}))

    # -- the reader's thread -------------------------------------------------------------------------

    def drain(self, now_ns: int, *, last: bool = False) -> Iterator[Sample]:
        """The stacks that came since the last time; at the end those that wait for symbols, too."""
        if self.inbox is None:
            return
        until = time.monotonic() + LAST_S if last else None
        batch: list[Stack] = []
        for stack in self._stacks(self.inbox, until):
            if stack.sampled and not self._samples.is_new(stack.id, stack.pid, stack.frames):
                continue
            batch.append(stack)
            if len(batch) == STACKS_A_SAMPLE:
                yield stacks_sample(batch, now_ns)
                batch = []
        if batch:
            yield stacks_sample(batch, now_ns)
        yield from self.kernels.samples(now_ns, until)
        if last and self.kernels.unread:
            count = self.kernels.unread
            text = (
                f"the names of the last {count} kernels were not found in time: their files could not be "
                f"read within {LAST_S:g} s of the end (a busy machine, or a slow file system?); record "
                "again, and let the program run for some seconds after it launched them"
            )
            self._report(Sample(PROBLEM, time.monotonic_ns(), {"text": text}))
        places, self._places = self._places, []
        yield from places_samples(places, now_ns, self._samples.number)
        if now_ns > self._swept_ns + _SWEEP_NS:
            self._swept_ns = now_ns
            self._sweep()

    def relieve(self) -> None:
        """Makes room for more stacks between two marks."""
        if self.inbox is not None:
            self.inbox.relieve()

    def _stacks(self, inbox: Inbox, until: float | None) -> Iterator[Stack]:
        """``until``: at the end files may be read so long, s of the monotonic clock."""
        last = until is not None
        inbox.drain(last=last)
        self._hear()  # mappings from before a stack's time are known from here on
        turn = Turn(LAST_TURN_S if last else _TURN_S)
        yield from self.resolver.consume(turn.of(inbox.unread))
        inbox.looked_at()
        yield from self.resolver.complete(turn.lasts)
        while until is not None and self.resolver.waits and turn.lasts() and time.monotonic() < until:
            self.resolver.natives.wait(until - time.monotonic())
            yield from self.resolver.complete(turn.lasts)
        if last and (rest := len(inbox.unread) + self.resolver.waits):
            text = f"the last {rest} stacks were not resolved in time: their lines are unknown"
            self._report(Sample(PROBLEM, time.monotonic_ns(), {"text": text}))

    def aside(self, record: bytes) -> bool:
        """Consumes a record that is no part of a stack."""
        if (kind := int.from_bytes(record[:4], "little")) == LINE_RECORD:
            self._places.append(record)
        elif kind == HANDLE_RECORD:
            self.kernels.hear(record)
        return kind in (LINE_RECORD, HANDLE_RECORD)

    def _sweep(self) -> None:
        """Makes room in the kernel: code of processes that had ended at the last time already."""
        assert self.programs is not None
        seen = self.programs.maps["seen"]
        known = {*self.resolver.processes, *self._mappings.processes}
        known |= {*self._samples.processes, *self.kernels.processes}
        gone = {pid for pid in known if not os.path.exists(f"/proc/{pid}")}
        if ended := gone & self._gone:
            self.kernels.forget(ended)
        for pid in ended:
            self._mappings.forget(pid)
            self._samples.forget(pid)
            for serial, code in self.resolver.forget(pid):
                with contextlib.suppress(OSError):  # freed by the process itself
                    bpfcall.delete(seen, struct.pack("<QQ", serial, code))
        self._gone = gone

    def close(self) -> None:
        self.resolver.natives.close()
        if self.inbox is not None:
            self.inbox.close()


def _identity(path: Path) -> Identity:
    status = os.stat(path)
    return status.st_dev, status.st_ino
