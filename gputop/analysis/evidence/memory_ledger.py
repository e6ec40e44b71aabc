"""The memory that processes hold by their calls, and by NVML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gputop.analysis.evidence.memory_calls import BEGINNING, ENDED, UNKNOWN, Effect, Inner, MemoryCalls
from gputop.engine.fork_state import apart
from probes.api_semantics import Memory
from probes.schema import Kind, Records
from probes.source import Sample


@dataclass(frozen=True, slots=True)
class OnGpu:
    """The memory of a GPU in a sample of NVML, bytes: total, used, and by process."""

    total: int
    used: int
    holders: tuple[tuple[int, int], ...]  # process, bytes


def gpu_of(sample: Sample | None, pid: int) -> OnGpu | None:
    """Return the GPU of a process: the one that lists it, or the only one."""
    rows = [row for row in (sample.data.get("gpus") or () if sample else ()) if isinstance(row, dict)]
    found = [row for row in rows if any(int(one) == pid for one, _ in row.get("processes") or ())] or rows
    if len(found) != 1:
        return None
    total, used = found[0].get("memory_total_bytes"), found[0].get("memory_used_bytes")
    if not isinstance(total, int) or not isinstance(used, int):
        return None
    return OnGpu(
        total, used, tuple((int(one), int(size or 0)) for one, size in found[0].get("processes") or ())
    )


# Held memory by the stack of its allocation: of the GPU, and page-locked of the host.

OF_GPU: frozenset[Memory] = frozenset({"device", "managed", "pool", "physical"})
OF_HOST: frozenset[Memory] = frozenset({"pinned", "registered"})
_ALLOCATES = OF_GPU | OF_HOST

MOST_POINTS = 256  # of the history; then every second one goes
MOST_SHORTAGES = 64
MOST_ENDED = 4096  # processes that ended and had held memory; then the oldest is forgotten
MOST_ORIGINS = 16  # origins that are listed with a shortage
RETRY_NS = 1_000_000_000  # an allocator that tries again does so within this

Origin = tuple[int, Memory, int]  # pid, use, stack
Place = tuple[int, str, int]  # pid, space, address or number
History = tuple[tuple[int, dict[Origin, int]], ...]


class Sum(NamedTuple):
    """The memory of one origin: bytes and pieces that it holds, and all that it ever allocated."""

    held: int = 0
    pieces: int = 0
    allocated: int = 0
    allocations: int = 0


class HeldAllocation(NamedTuple):
    """One allocation that is held."""

    size: int
    origin: Origin
    since: int
    device: int = UNKNOWN  # as the process counts


@dataclass(frozen=True, slots=True)
class Shortage:
    """An allocation that failed for lack of memory, with all attempts that followed at once."""

    time_ns: int
    pid: int
    tid: int
    op: int  # the function
    stack: int
    use: Memory
    requested: int  # bytes
    attempts: int  # number of attempts
    # the process's memory of that kind then, by origin, the most first
    held: tuple[tuple[Origin, int, int], ...]
    total: int
    pieces: int  # number of its allocations
    gave_back: int = 0  # bytes that the process freed between the first attempt and the last
    # free memory of the GPU as the process queried it right after; None without a query
    room: int | None = None
    met: bool = False  # True if one more attempt succeeded
    gpu: OnGpu | None = None  # its GPU as NVML saw it last before; None where that is not known


class Held:
    """Consumes records; its figures are those of the last mark."""

    def __init__(self) -> None:
        self._calls = MemoryCalls()
        self._reset: set[int] = set()  # processes of which it is not known what a reset freed
        self._pieces: dict[Place, HeldAllocation] = {}
        self._handles: dict[tuple[int, int], int] = {}  # pid, handle -> number of the physical memory
        self._users: dict[Place, int] = {}  # of physical memory: its handle and its mappings
        self._maps: dict[tuple[int, int], tuple[int, Place]] = {}  # pid, address -> size, physical memory
        self._numbers = 0
        self._sums: dict[Origin, Sum] = {}
        self._takers: dict[Origin, int] = {}  # the last thread that allocated there
        self._totals: dict[int, int] = {}
        self._peaks: dict[int, int] = {}
        self._strangers: dict[int, int] = {}  # pid -> frees of unknown allocations
        self._left: dict[int, dict[Origin, Sum]] = {}  # pid -> its memory when it ended
        self._known: set[int] = set()  # processes that have allocated or freed memory
        self._begun: set[int] = set()  # processes recorded from their program's begin
        self.history: History = ()
        self._spacing_ns = 0
        self.shortages: tuple[Shortage, ...] = ()

    def copy(self) -> Held:
        """Return a fork of the state."""
        return apart(self)

    def name(self, names: list[str]) -> None:
        """Set the names of the session's functions, by their numbers."""
        self._calls.name(names)

    def lost(self) -> None:
        """Note that records were lost before this mark."""
        self._calls.lost()

    def uses(self, pid: int, devices: Iterable[int]) -> None:
        """Note that a process's calls worked on these GPUs, by its own numbers."""
        self._calls.uses(pid, devices)

    @property
    def unsure(self) -> frozenset[int]:
        """Processes that reset a GPU while the GPU of some of their allocations is not known."""
        return frozenset(self._reset)

    @property
    def sums(self) -> dict[Origin, Sum]:
        """The memory by origin, those without any left included."""
        return dict(self._sums)

    def last(self, pid: int) -> dict[Origin, Sum]:
        """Return the memory of a process by origin; of one that ended, its last."""
        return self._left.get(pid) or {origin: one for origin, one in self._sums.items() if origin[0] == pid}

    def taker(self, origin: Origin) -> int:
        """Return the last thread that allocated there."""
        return self._takers.get(origin, 0)

    @property
    def peaks(self) -> dict[int, int]:
        """pid -> the most GPU memory that it held at a time."""
        return dict(self._peaks)

    @property
    def strangers(self) -> dict[int, int]:
        """pid -> frees of memory from before it was watched."""
        return dict(self._strangers)

    def begun(self, pid: int) -> bool:
        """Return True if the begin of its program is recorded: no earlier allocations are missing."""
        return pid in self._begun

    def total(self, pid: int) -> int:
        """Return the bytes of GPU memory that a process holds."""
        return self._totals.get(pid, 0)

    def add(self, records: Records) -> None:
        """Consume records of any kind."""
        self._calls.add(records)

    def mark(self, time_ns: int, gpus: Sample | None = None) -> None:
        """Apply all records up to a mark."""
        before = self.shortages
        for effect in self._calls.effects():
            self._apply(effect)
        if self.shortages is not before:
            self.shortages = tuple(
                one if one.gpu else replace(one, gpu=gpu_of(gpus, one.pid)) for one in self.shortages
            )
        if not self.history or time_ns - self.history[-1][0] >= self._spacing_ns:
            now = {origin: one.held for origin, one in self._sums.items() if one.held}
            if now or self.history:
                self.history = (*self.history, (time_ns, now))
        if len(self.history) > MOST_POINTS:
            self.history = self.history[::2]
            self._spacing_ns = max((time_ns - self.history[0][0]) // MOST_POINTS, 1)

    # -- one call -----------------------------------------------------------------------------

    def _apply(self, effect: Effect) -> None:
        at, row, use, device, counted = effect
        pid = int(row["pid"])
        for inner in counted:
            self._undo(inner)
        if use in BEGINNING and any(inner.use == use for inner in counted):
            return  # the inner call has freed it
        if use == ENDED:
            self._end(pid, died=row["kind"] == Kind.EXIT)
        elif use == "reset":
            if not int(row["ret"]):
                self._reset_gpu(pid, device)
        elif int(row["ret"]):
            if use in _ALLOCATES:
                self._short(at, row, use)
        elif use in _ALLOCATES:
            self._allocated(at, row, use, device)
        elif use == "free":
            self._free(pid, "address", int(row["aux"]), at)
        elif use == "unregister":
            self._free(pid, "registered", int(row["aux"]), at)
        elif use == "map":
            self._map(pid, int(row["stream"]), int(row["bytes"]), int(row["aux"]))
        elif use == "unmap":
            self._unmap(pid, int(row["aux"]), int(row["bytes"]))
        elif use == "release":
            self._release(pid, int(row["aux"]))
        elif use == "room":
            self._room(at, pid, int(row["aux"]))

    def _allocated(self, at: int, row: Any, use: Memory, device: int) -> None:
        pid, address, size = int(row["pid"]), int(row["aux"]), int(row["bytes"])
        space = use if use in ("registered", "physical") else "address"
        if not address:
            return  # a recording without addresses
        if use == "physical":
            self._release(pid, address, known=True)  # the release of its former owner was lost
            self._numbers += 1
            self._handles[pid, address] = address = self._numbers
            self._users[pid, space, address] = 1
        place = (pid, space, address)
        if pid in self._left:
            self._forget(pid)  # another process has its number
        self._known.add(pid)
        self._gone(place)  # the free of the former allocation is still under way
        origin = (pid, use, int(row["stack"]))
        self._pieces[place] = HeldAllocation(size, origin, at, device if use != "physical" else UNKNOWN)
        self._takers[origin] = int(row["tid"])
        one = self._sums.get(origin, Sum())
        self._sums[origin] = Sum(one.held + size, one.pieces + 1, one.allocated + size, one.allocations + 1)
        if use in OF_GPU:
            self._totals[pid] = self.total(pid) + size
            self._peaks[pid] = max(self._peaks.get(pid, 0), self.total(pid))
        last = self._last_shortage(pid)
        if last is not None and last.requested == size and at - last.time_ns < RETRY_NS and not last.met:
            self._replace(last, replace(last, met=True))

    def _undo(self, inner: Inner) -> None:
        """Undo a nested call that counted before the call around it, which counts in its place."""
        if inner.use in _ALLOCATES and inner.ret:
            last = self._last_shortage(inner.pid)
            if last is not None and (last.tid, last.requested) == (inner.tid, inner.size):
                fewer = replace(last, attempts=last.attempts - 1)
                self._replace(last, *((fewer,) if fewer.attempts else ()))
            return
        place = (inner.pid, inner.use if inner.use == "registered" else "address", inner.address)
        piece = self._pieces.get(place)
        if inner.use in _ALLOCATES and piece is not None and piece.since == inner.end:
            self._gone(place)
            one = self._sums[piece.origin]
            self._sums[piece.origin] = one._replace(
                allocated=one.allocated - piece.size, allocations=one.allocations - 1
            )
            if one.allocations == 1:
                del self._sums[piece.origin]

    def _gone(self, place: Place) -> None:
        piece = self._pieces.pop(place, None)
        if piece is None:
            return
        one = self._sums[piece.origin]
        self._sums[piece.origin] = one._replace(held=one.held - piece.size, pieces=one.pieces - 1)
        if piece.origin[1] in OF_GPU:
            self._totals[place[0]] -= piece.size

    def _free(self, pid: int, space: str, address: int, at: int) -> None:
        piece = self._pieces.get((pid, space, address))
        if piece is None:
            self._stranger(pid, address)
        elif piece.since <= at:  # else it was allocated while this free was under way
            self._gone((pid, space, address))

    def _stranger(self, pid: int, address: int) -> None:
        if address:  # free(NULL) does nothing
            self._known.add(pid)
            self._strangers[pid] = self._strangers.get(pid, 0) + 1

    def _release(self, pid: int, handle: int, *, known: bool = False) -> None:
        """Release a handle; ``known``: only a recorded one."""
        number = self._handles.pop((pid, handle), None)
        if number is not None:
            self._leave((pid, "physical", number))
        elif not known:
            self._stranger(pid, handle)

    def _map(self, pid: int, start: int, size: int, handle: int) -> None:
        number = self._handles.get((pid, handle))
        if number is not None:
            place = (pid, "physical", number)
            self._users[place] += 1
            if (before := self._maps.pop((pid, start), None)) is not None:
                self._leave(before[1])  # its unmap was lost
            self._maps[pid, start] = (size, place)

    def _unmap(self, pid: int, start: int, size: int) -> None:
        at = start
        while at < start + size:
            found = self._maps.pop((pid, at), None)
            if found is None:
                break
            self._leave(found[1])
            at += max(found[0], 1)
        if at >= start + size:
            return
        inside = [key for key in self._maps if key[0] == pid and start <= key[1] < start + size]
        for key in inside:
            self._leave(self._maps.pop(key)[1])

    def _leave(self, place: Place) -> None:
        self._users[place] = self._users.get(place, 1) - 1
        if self._users[place] <= 0:
            del self._users[place]
            self._gone(place)

    def _end(self, pid: int, *, died: bool) -> None:
        """End a process, or its program at an exec."""
        if pid in self._known:
            if died:
                self._left[pid] = {origin: one for origin, one in self._sums.items() if origin[0] == pid}
            self._drop(pid, every=True)
        if not died:
            self._begun.add(pid)
        elif pid not in self._known:
            self._begun.discard(pid)
        if len(self._left) > MOST_ENDED:
            oldest = next(iter(self._left))
            self._forget(oldest)
            self._begun.discard(oldest)

    def _forget(self, pid: int) -> None:
        """Forget a process that ended."""
        self._sums = {origin: one for origin, one in self._sums.items() if origin[0] != pid}
        self._takers = {origin: one for origin, one in self._takers.items() if origin[0] != pid}
        self._known.discard(pid)
        for table in (self._left, self._peaks, self._totals, self._strangers):
            table.pop(pid, None)
        self._reset.discard(pid)

    def _drop(self, pid: int, *, every: bool) -> None:
        """Drop all that a process holds; else all but host memory that it only registered."""
        for place in [one for one in self._pieces if one[0] == pid and (every or one[1] != "registered")]:
            self._gone(place)
        self._handles = {key: one for key, one in self._handles.items() if key[0] != pid}
        self._maps = {key: one for key, one in self._maps.items() if key[0] != pid}
        self._users = {key: one for key, one in self._users.items() if key[0] != pid}

    def _reset_gpu(self, pid: int, device: int) -> None:
        """Drop a process's memory of one GPU, as far as the GPU of each allocation is known."""
        if self._calls.one_gpu(pid):
            self._drop(pid, every=False)
            return
        own = [(place, one) for place, one in self._pieces.items() if place[0] == pid]
        for place, one in own:
            if one.origin[1] == "registered":
                continue
            if UNKNOWN in (device, one.device):
                self._reset.add(pid)
            elif one.device == device:
                self._gone(place)

    # -- shortages ----------------------------------------------------------------------------

    def _short(self, at: int, row: Any, use: Memory) -> None:
        pid, tid, size = int(row["pid"]), int(row["tid"]), int(row["bytes"])
        alike = OF_GPU if use in OF_GPU else OF_HOST
        own = [
            (origin, one.held, one.pieces)
            for origin, one in self._sums.items()
            if origin[0] == pid and origin[1] in alike and one.held
        ]
        own.sort(key=lambda one: -one[1])
        total, pieces = sum(one[1] for one in own), sum(one[2] for one in own)
        stack, op = int(row["stack"]), int(row["op"])
        last = self._last_shortage(pid)
        made = Shortage(at, pid, tid, op, stack, use, size, 1, tuple(own[:MOST_ORIGINS]), total, pieces)
        # an allocator tries again from another place in its code
        again = (
            last is not None and (last.tid, last.requested) == (tid, size) and at - last.time_ns < RETRY_NS
        )
        if again and last is not None:
            gave = last.gave_back + max(last.total - total, 0)
            self._replace(last, replace(made, attempts=last.attempts + 1, gave_back=gave))
        else:
            self.shortages = (*self.shortages, made)[-MOST_SHORTAGES:]

    def _last_shortage(self, pid: int) -> Shortage | None:
        return next((one for one in reversed(self.shortages) if one.pid == pid), None)

    def _room(self, at: int, pid: int, free: int) -> None:
        last = self._last_shortage(pid)
        if last is not None and at - last.time_ns < RETRY_NS and not last.met:
            self._replace(last, replace(last, room=free))

    def _replace(self, one: Shortage, *by: Shortage) -> None:
        self.shortages = tuple(new for other in self.shortages for new in (by if other is one else (other,)))
