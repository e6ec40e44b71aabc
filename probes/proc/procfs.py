"""Facts of processes and of this machine from /proc."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import pwd
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from probes.proc.belonging import VARIABLES, belonging, container_of
from probes.proc.secrets import masked

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NS = 1_000_000_000
_COMMAND_LIMIT = 4096
_FILE_LIMIT = 8192  # status and stat of a thread are a tenth of it
_ENVIRONMENT_LIMIT = 1 << 20
_MOST_ABOVE = 64  # processes above another one
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
# beside those of ``belonging`` the only variables that are ever read: which GPUs a process can use
_VARIABLES = {b"CUDA_VISIBLE_DEVICES": "cuda_visible_devices", b"CUDA_DEVICE_ORDER": "cuda_device_order"}
_STATUS = re.compile(
    rb"Name:\t(.*)\n(?:.*\n)*?State:\t(\S)(?s:.*)"
    rb"\nvoluntary_ctxt_switches:\t(\d+)\nnonvoluntary_ctxt_switches:\t(\d+)"
)


@lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """The user's name, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def process_facts(pid: int) -> dict[str, Any] | None:
    """Name, command line, user, parent and start of a process; None when it has gone.

    ``start_ns`` is CLOCK_MONOTONIC as far as the machine was never suspended (procfs counts
    CLOCK_BOOTTIME); it identifies processes, it is no timestamp. ``namespace_pid`` is the number that
    the process itself sees when it lives in another pid namespace; ``container`` is "" outside of one. The
    CUDA variables are those of its start, ``None`` where it has none; the keys are missing where its
    environment may not be read. Keys of ``belonging.KEYS`` are there as far as they are known.
    """
    try:
        name, fields = _stat(f"/proc/{pid}")
        raw = _read(f"/proc/{pid}/cmdline", _COMMAND_LIMIT)  # as long as it likes: it owns that memory
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    return {
        "pid": pid,
        "parent_pid": int(fields[1]),
        "name": name.decode(errors="replace"),
        "command": " ".join(masked(raw.rstrip(b"\0").decode(errors="replace").split("\0"))),
        "user": user_name(uid),
        "uid": uid,
        "start_ns": int(fields[19]) * _NS // _TICKS_PER_S,
        "namespace_pid": namespace_pid(pid),
        **_surroundings(pid),
    }


def page_faults(pid: int, tid: int | None = None) -> tuple[int, int] | None:
    """(minor, major) page faults that the kernel has counted since the birth of a process, or of a thread.

    A process's are those of all its threads, also of those that have ended. None when it has gone.
    """
    try:
        fields = _stat(_folder(pid, tid))[1]
        return int(fields[7]), int(fields[9])
    except (OSError, IndexError, ValueError):
        return None


def process_state(pid: int) -> str:
    """Return the kernel's letter for a process's state: R, S, D, T (stopped), Z; "" when it has gone."""
    try:
        return _stat(f"/proc/{pid}")[1][0].decode()
    except (OSError, IndexError):
        return ""


def is_kernel_thread(pid: int) -> bool:
    """True if the process is a thread of the kernel; False when it has gone."""
    try:
        return bool(int(_stat(f"/proc/{pid}")[1][6]) & _KERNEL_THREAD)
    except (OSError, IndexError, ValueError):
        return False


def descendants(pids: Iterable[int]) -> set[int]:
    """The children of processes, and theirs, as they are now."""
    children: dict[int, list[int]] = {}
    for folder in os.listdir("/proc"):
        if folder.isdecimal():
            children.setdefault(parent(int(folder)), []).append(int(folder))
    found: set[int] = set()
    left = list(pids)
    while left:
        fresh = set(children.get(left.pop(), ())) - found
        found |= fresh
        left += fresh
    return found


def _read(path: str, limit: int = _FILE_LIMIT) -> bytes:
    """The start of a small file; half the price of ``Path.read_bytes``. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def _folder(pid: int, tid: int | None) -> str:
    return f"/proc/{pid}" if tid is None else f"/proc/{pid}/task/{tid}"


def _stat(folder: str) -> tuple[bytes, list[bytes]]:
    """Return (name, fields from the state on) of a stat file. Raises OSError."""
    head, _, rest = _read(f"{folder}/stat").rpartition(b")")
    return head.partition(b"(")[2], rest.split()


def _namespace_numbers(folder: str) -> list[bytes]:
    """Return the numbers of a process or thread, from /proc's pid namespace to its own. Raises OSError."""
    return _read(f"{folder}/status").partition(b"\nNSpid:")[2].partition(b"\n")[0].split()


def namespace_pid(pid: int) -> int | None:
    """Return the innermost number of a process in another pid namespace than /proc's; else None."""
    try:
        numbers = _namespace_numbers(f"/proc/{pid}")
    except OSError:
        return None
    return int(numbers[-1]) if len(numbers) > 1 else None


def _surroundings(pid: int) -> dict[str, Any]:
    """Container, CUDA's variables, and the owners beyond its user."""
    cgroups, content = b"", None
    with contextlib.suppress(OSError):
        cgroups = _read(f"/proc/{pid}/cgroup")
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        content = b"\0" + file.read(_ENVIRONMENT_LIMIT)
    facts: dict[str, Any] = {"container": container_of(cgroups)}
    if content is None:
        return facts | belonging(cgroups, {})
    facts |= {key: variable_of(content, name) for name, key in _VARIABLES.items()}
    known = {name.decode(): value for name in VARIABLES if (value := variable_of(content, name)) is not None}
    return facts | belonging(cgroups, known)


def variable_of(content: bytes, name: bytes) -> str | None:
    """The value in an environment that begins with a zero, found without cutting it up: it may be large."""
    _, found, rest = content.partition(b"\0" + name + b"=")
    if not found:
        return None
    end = rest.find(b"\0", 0, _COMMAND_LIMIT)
    return rest[: end if end >= 0 else _COMMAND_LIMIT].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class ThreadCounters:
    """The kernel's counters of a thread since its birth."""

    name: str
    state: str  # one letter, as ps shows it
    on_cpu_ns: int
    run_delay_ns: int
    voluntary: int
    involuntary: int


def thread_counters(pid: int, tid: int) -> ThreadCounters | None:
    """The thread's counters; None when it has gone or is hidden. Costs 7 us.

    The times come first and the switches after: events in between are in the next reading.
    """
    folder = f"/proc/{pid}/task/{tid}"
    try:
        on_cpu, run_delay = _times(folder)
        match = _STATUS.match(_read(f"{folder}/status"))
    except (OSError, IndexError, ValueError):
        return None
    if match is None:
        return None
    name, state, *switches = (text.decode(errors="replace") for text in match.groups())
    return ThreadCounters(name, state, on_cpu, run_delay, int(switches[0]), int(switches[1]))


def _times(folder: str) -> tuple[int, int]:
    """(on a CPU, in a run queue) in ns; without schedstat in hundredths of a second, and no queue."""
    try:
        numbers = _read(f"{folder}/schedstat").split()
        return int(numbers[0]), int(numbers[1])
    except FileNotFoundError:
        return _cpu_ns(folder), 0


def _cpu_ns(folder: str) -> int:
    fields = _stat(folder)[1]
    return (int(fields[11]) + int(fields[12])) * _NS // _TICKS_PER_S


def has_run_delays() -> bool:
    """True if this kernel counts how long threads wait for a CPU."""
    try:
        return int(_read("/proc/self/schedstat").split()[0]) > 0
    except (OSError, IndexError, ValueError):
        return False


def memory_size(pid: int) -> bytes | None:
    """Something that changes when a process maps or unmaps files; None when it has gone."""
    try:
        return _read(f"/proc/{pid}/statm").partition(b" ")[0]
    except OSError:
        return None


def resident_bytes(pid: int, page: int) -> int | None:
    """Resident memory of a process, in pages of so many bytes; None when it has gone."""
    try:
        return int(_read(f"/proc/{pid}/statm").split()[1]) * page
    except (OSError, IndexError, ValueError):
        return None


def cpu_ns(pid: int) -> int | None:
    """CPU time of all threads of a process since its birth; None when it has gone."""
    try:
        return _cpu_ns(f"/proc/{pid}")
    except (OSError, IndexError, ValueError):
        return None


def exists(pid: int) -> bool:
    """True if there is such a process, also one that has ended and is not waited for yet.

    It needs no descriptor: a process must not seem to have ended because gputop has none left.
    """
    return os.path.exists(f"/proc/{pid}")


def start_of(pid: int, tid: int | None = None) -> tuple[int, int] | None:
    """(parent, start in ns since boot) of a process, or of one of its threads; None when it has gone."""
    try:
        fields = _stat(_folder(pid, tid))[1]
        return int(fields[1]), int(fields[19]) * _NS // _TICKS_PER_S
    except (OSError, IndexError, ValueError):
        return None


def boot_offset_ns() -> int:
    """How far "since boot" is ahead of CLOCK_MONOTONIC: the time that the machine was suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()


def threads(pid: int) -> list[int]:
    """Thread ids of a process; empty when it has gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def parent(pid: int) -> int:
    try:
        return int(_stat(f"/proc/{pid}")[1][1])
    except (OSError, IndexError):
        return 0


def thread_numbers(pid: int) -> dict[int, int]:
    """Of a process's threads the numbers that they have in their own namespace, with those they have here."""
    found = {}
    for tid in threads(pid):
        if numbers := _namespace_numbers(_folder(pid, tid)):
            found[int(numbers[-1])] = tid
    return found


def numbered_by(pid: int, number: int) -> int:
    """The number here of a process that ``pid`` numbers otherwise, in a container: itself or one above it.

    ``number`` where both have one namespace, and where it means no such process.

    Raises:
        OSError: ``pid`` has ended, so that its namespace is not known.
    """
    space, at = os.readlink(f"/proc/{pid}/ns/pid"), pid
    if space == os.readlink("/proc/self/ns/pid"):
        return number
    with contextlib.suppress(OSError):
        for _ in range(_MOST_ABOVE):
            if at <= 0 or os.readlink(f"/proc/{at}/ns/pid") != space:
                break
            if namespace_pid(at) == number:
                return at
            at = parent(at)
    return number


def thread_name(pid: int, tid: int) -> str | None:
    """The thread's name, or None when it has gone."""
    try:
        return _read(f"/proc/{pid}/task/{tid}/comm").decode(errors="replace").rstrip("\n")
    except OSError:
        return None


def words_of(path: Path) -> list[list[str]]:
    """The words of a file's lines; none where it is not there (PSI may be compiled in and off)."""
    try:
        return [line.split() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return []


def clock_facts() -> dict[str, int]:
    """Three clocks at one instant, and the time zone."""
    now = time.time_ns()
    return {
        "monotonic_ns": time.monotonic_ns(),
        "boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        "realtime_ns": now,
        "utc_offset_s": time.localtime(now // _NS).tm_gmtoff,
    }


def machine_facts() -> dict[str, Any]:
    """Facts about the machine for readers of a recording."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "cpu_model": _cpu_model(),
        "memory_bytes": memory,
        **_boot(),
    }


def _cpu_model() -> str:
    """The name of the first CPU; "" where the kernel has none (arm64)."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in islice(lines, 32):
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return ""


def _boot() -> dict[str, str]:
    """Which start of which machine this is: recordings with the same one have one clock. It names no user."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return {}
    return {"boot": hashlib.sha256(b"gputop " + text).hexdigest()[:16]}


LEAST_OWN_NS = 40_000_000  # frames come 20 times a second at most


class OwnUse:
    """CPU time and memory of gputop itself."""

    def __init__(self) -> None:
        self._percent = 0.0
        self._wall_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()
        self._pages = 0

    def sample(self) -> tuple[float, int]:
        """(percent of one CPU since the last call that was at least ``LEAST_OWN_NS`` ago, resident bytes).

        A few milliseconds mean nothing: the caller is at work in them.
        """
        wall_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        if wall_ns - self._wall_ns >= LEAST_OWN_NS or not self._percent:
            self._percent = 100 * (cpu_ns - self._cpu_ns) / max(wall_ns - self._wall_ns, 1)
            self._wall_ns, self._cpu_ns = wall_ns, cpu_ns
        with contextlib.suppress(OSError):  # no descriptor is left: the former value
            self._pages = int(_read("/proc/self/statm").split()[1])
        return self._percent, self._pages * os.sysconf("SC_PAGE_SIZE")
