"""Makes the text of the BPF programs, and loads it."""

from __future__ import annotations

import errno
import mmap
import os
import platform
import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from probes import schema
from probes.ebpf import bpfcall
from probes.ebpf.build import btf, registers, structures
from probes.ebpf.build.compiled import CompileError, compiled
from probes.ebpf.build.kept_layout import layout_of
from probes.ebpf.module import Module, late, value
from probes.schema import NO_PYTHON

_BPF = Path(__file__).resolve().parent / "bpf"
SOURCES = (
    "base.h", "reads.h", "sites.h", "gputop.c", "arguments.h", "shapes.c", "calls.c", "communicators.c",
    "scheduler.c",
)  # fmt: skip

MAX_THREADS = 16384
MAX_PROCS = 4096
SLOTS = 1 << 16  # hashes of threads and processes that every switch looks up; a power of two
_OVERDRAWN = 1 << 30  # in a slot: more than can be subtracted from it

VALUES = ("slots",)  # maps of one value that programs know the address of
# calls whose line is recorded -> how the programs know them
LINES = {"all": "1", "slow": "((cookie) >> 57 & 1)", "off": "0"}

OLDEST_KERNEL = (5, 15)  # cookies of perf events, registers of a task
ATTACH_VARIABLE = "GPUTOP_ATTACH"


class ProbeError(Exception):
    """Live tracing cannot start; the message has the reason and the next step."""

    def __init__(self, message: str, log: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.log = tuple(log)


class RefusedProbesError(ProbeError):
    """The kernel refuses a program."""


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters of the programs."""

    watch_all: bool  # every process that makes a CUDA call is watched; else only those put into ``procs``
    ring_bytes: int  # size of the ring buffer, a power of two of pages
    own_pid: int  # gputop itself, never watched
    lines: str = "slow"  # calls whose line of Python is recorded: one of LINES


def max_cpus() -> int:
    """One more than the highest CPU number that can ever appear."""
    try:
        text = Path("/sys/devices/system/cpu/possible").read_text()
        return int(text.strip().replace(",", "-").split("-")[-1]) + 1
    except (OSError, ValueError):
        return os.cpu_count() or 1


def kernel_problem(release: str) -> str:
    """Why a kernel of this release is too old for live tracing, in one sentence; empty when it is not."""
    if is_release(release, OLDEST_KERNEL):
        return ""
    oldest = ".".join(map(str, OLDEST_KERNEL))
    return f"Linux {oldest} or later is needed for live tracing, this is {release}"


def is_release(release: str, oldest: tuple[int, int]) -> bool:
    """True if a kernel's release is this version or a later one, or has no version."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return match is None or (int(match[1]), int(match[2])) >= oldest


def uses_multi(environment: Mapping[str, str] = os.environ) -> bool | None:
    """Whether to attach with multi-uprobe links (Linux 6.6 and later), or else with perf events.

    ``GPUTOP_ATTACH=perf`` requests what Linux 5.15 can do, ``multi`` the other, and ``pairs`` the other
    without sessions, as Linux 6.6 can; else it is tried.
    None without the right to try.

    Raises:
        ProbeError: ``GPUTOP_ATTACH`` has another value.
    """
    wanted = environment.get(ATTACH_VARIABLE, "")
    if wanted not in ("", "multi", "pairs", "perf"):
        raise ProbeError(f"{ATTACH_VARIABLE}={wanted}: it can be multi, pairs or perf")
    return wanted != "perf" if wanted else bpfcall.has_uprobe_multi()


def defines(options: Options, layout: btf.KernelLayout, *, as_old: bool) -> list[str]:
    defines: dict[str, int | str] = {
        **structures.task(layout),
        **structures.interrupts(layout),
        **structures.throttling(layout),
        "WATCH_ALL": int(options.watch_all),
        "OWN_PID": late(0),  # so that the text is the same at each start
        "RING_PAGES": options.ring_bytes // os.sysconf("SC_PAGE_SIZE"),
        "MAX_THREADS": MAX_THREADS,
        "MAX_PROCS": MAX_PROCS,
        "MAX_CPUS": max_cpus(),
        "SLOTS": SLOTS,
        "SLOTS_AT": value(VALUES.index("slots")),
        "WANTS_LINE(cookie)": LINES[options.lines],
        "NO_PYTHON": NO_PYTHON,
    }
    if as_old or not layout.switch_has_state:
        defines["TASK_STATE"] = layout.offsets["task_struct.__state"]
    if layout.oom_has_task:
        defines["OOM_TELLS_TASK"] = 1
    if as_old:
        defines["OUTLIVES"] = 1
    if typed(layout, as_old=as_old):
        defines["TYPED"] = 1
    return [f"#define {name} {value}" for name, value in defines.items()]


def typed(layout: btf.KernelLayout, *, as_old: bool) -> Mapping[str, int]:
    """The tracepoints whose programs know the types of their arguments, with the types; all, or none."""
    whole = set(layout.tracepoints) == set(btf.TYPED_TRACEPOINTS)
    return layout.tracepoints if whole and not as_old else {}


def source_text(options: Options, layout: btf.KernelLayout | None = None, *, as_old: bool = False) -> str:
    """The complete program text: record layout, offsets, registers and limits, then probes/ebpf/bpf.

    Args:
        options: Its parameters.
        layout: This kernel's, if it was read before.
        as_old: For perf events: what tracepoints report only since Linux 5.18 is read from the task, and
            the map ``stopped`` makes the programs idle.

    Raises:
        ProbeError: An architecture whose registers are not described.
    """
    return text_of(SOURCES, defines(options, layout or btf.read_layout(), as_old=as_old))


def text_of(sources: Iterable[str], defines: Iterable[str], declarations: str = "") -> str:
    """Files of probes/ebpf/bpf as one text, after their common part and these definitions.

    Raises:
        ProbeError: An architecture whose registers are not described.
    """
    machine = platform.machine()
    if machine not in registers.MACHINES:
        known = " and ".join(registers.MACHINES)
        raise ProbeError(f"live tracing works on {known}, this machine is {machine}; replay and stats work")
    return "\n".join(
        [
            "#include <linux/types.h>",
            "#include <linux/compiler.h>",
            *registers.defines(machine),
            *defines,
            schema.c_header(),
            declarations,
            *((_BPF / source).read_text() for source in sources),
        ]
    )


CALLS, CALLS_OF_SESSIONS = ("on_entry", "on_return"), ("on_call",)
RARE = ("on_joining", "on_joined")
UPROBES = CALLS + RARE  # where the kernel has no sessions
MAPS = (
    "events", "threads", "procs", "slots", "cpus", "line_programs", "leave_programs", "sites", "site_states",
)  # fmt: skip
TRACEPOINTS: dict[str, str] = {
    "sched_switch": "on_switch",
    "sched_waking": "on_waking",
    "sched_wakeup": "on_wakeup",
    "sched_wakeup_new": "on_wakeup_new",
    "sched_migrate_task": "on_migrate",
    "sched_process_fork": "on_fork",
    "sched_process_exec": "on_exec",
    "sched_process_exit": "on_exit",
    "mark_victim": "on_oom",
}
OPTIONAL = frozenset({"mark_victim"})  # nothing rests on these: a kernel may lack them


@dataclass(frozen=True, slots=True)
class Programs:
    """Loaded programs and maps, by file descriptor; ``module`` closes them."""

    options: Options  # parameters they were compiled with
    multi: bool  # the uprobe programs are for multi-uprobe links, else for perf events
    sessions: bool  # one program is at entry and return of calls (``on_call``), else there are two
    # what only some kernels let the programs observe, as in the header (docs/session-format.md)
    observes: Mapping[str, bool]
    layout: btf.KernelLayout  # this kernel's structures
    # the tracepoints whose programs know the types of their arguments, with the types
    typed: Mapping[str, int]
    module: Module
    uprobes: dict[str, int]
    tracepoints: dict[str, int]
    maps: dict[str, int]

    def admit(self, pid: int) -> None:
        """Lets the threads of a process join with their next switch or call. Raises OSError."""
        with mmap.mmap(self.maps["slots"], 4 * SLOTS) as counts:
            struct.pack_into("<I", counts, 4 * (pid & (SLOTS - 1)), _OVERDRAWN)
        bpfcall.update(self.maps["procs"], struct.pack("<I", pid), struct.pack("<I", 1))


def load(options: Options) -> Programs:
    """Loads everything, compiled before or now; attaches nothing.

    Raises:
        ProbeError: The kernel is too old or refuses a program, bcc is missing, or rights are missing.
    """
    if problem := kernel_problem(platform.release()):
        raise ProbeError(problem)
    multi = uses_multi() is not False  # without rights loading fails below, with the reason
    try:
        layout = layout_of()
    except btf.BtfError as error:
        raise ProbeError(str(error)) from error
    text = source_text(options, layout, as_old=not multi)
    names = (*MAPS, *(() if multi else ("stopped",)), *(() if options.watch_all else ("own_links",)))
    observes = {
        "interrupts": bool(structures.interrupts(layout)),
        "throttling": bool(structures.throttling(layout)),
    }
    types = typed(layout, as_old=not multi)
    pairs = os.environ.get(ATTACH_VARIABLE) == "pairs"
    sessions = multi and not pairs and bool(bpfcall.has_uprobe_multi(bpfcall.UPROBE_SESSION))
    loaded = load_text(
        text,
        (CALLS_OF_SESSIONS if sessions else CALLS) + RARE,
        TRACEPOINTS,
        names,
        multi=multi,
        sessions=CALLS_OF_SESSIONS if sessions else (),
        numbers=(options.own_pid,),
        values=VALUES,
        types=types,
    )
    return Programs(options, multi, sessions, observes, layout, types, *loaded)


Loaded = tuple[Module, dict[str, int], dict[str, int], dict[str, int]]


def load_text(
    text: str,
    uprobes: Iterable[str],
    tracepoints: Mapping[str, str],
    maps: Iterable[str],
    *,
    multi: bool,
    sessions: Collection[str] = (),
    numbers: Sequence[int] = (),
    others: Sequence[int] = (),
    values: Sequence[str] = (),
    types: Mapping[str, int] | None = None,
) -> Loaded:
    """Loads the programs of a text, which is compiled if it has not been before.

    Args:
        text: The complete text.
        uprobes: Names of the programs for uprobes.
        tracepoints: Raw tracepoints with the names of their programs.
        maps: Names of the maps that are wanted.
        multi: The uprobe programs are for multi-uprobe links.
        sessions: Those of them that are for sessions, or that such a one calls.
        numbers: Values of ``module.late`` in the text.
        others: Maps of other texts, ``module.outside`` in this one.
        values: Names of the maps of ``module.value`` in the text.
        types: Raw tracepoints whose programs know their arguments, with the types of these.

    Returns:
        The module, and file descriptors: uprobe programs by name, tracepoint programs by tracepoint, maps
        by name.

    Raises:
        ProbeError: The kernel refuses a program, bcc is missing, or rights are missing.
    """
    try:
        programs = compiled(text)
    except CompileError as error:
        raise ProbeError(str(error), error.log) from error
    try:
        module = Module(programs, numbers, others, values)
    except OSError as error:
        raise ProbeError(f"the kernel did not make the maps of the probes: {refusal(error)}") from error
    kinds = bpfcall.ProgramType
    attach_type = bpfcall.UPROBE_MULTI if multi else 0
    try:
        functions = {
            name: module.load(name, kinds.KPROBE, bpfcall.UPROBE_SESSION if name in sessions else attach_type)
            for name in uprobes
        }
        points = {
            point: load_tracepoint(module, name, (types or {}).get(point, 0))
            for point, name in tracepoints.items()
        }
    except bpfcall.RefusedError as error:
        module.close()
        reason = f"the kernel did not take the probes: {error.program}: {refusal(error)}"
        raise RefusedProbesError(reason, error.log) from error
    return module, functions, points, {name: module.maps[name] for name in maps}


def load_tracepoint(module: Module, name: str, arguments: int) -> int:
    """Loads a program for a raw tracepoint; ``arguments`` is their type, or 0. Raises as ``Module.load``."""
    kind = bpfcall.ProgramType.TRACING if arguments else bpfcall.ProgramType.RAW_TRACEPOINT
    return module.load(name, kind, arguments=arguments)


def refusal(error: OSError) -> str:
    """What the system refused; for too many open files also how to have more."""
    what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return f"{what}: allow more with ulimit -n" if error.errno == errno.EMFILE else what
