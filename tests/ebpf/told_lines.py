"""Lines that a program counted, and those that gputop tells of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from tests.ebpf.bpf_objects import others_probe
from tests.ebpf.growing import marks
from tests.ebpf.interpreters import interpreter, skip_without
from tests.ebpf.recording import Recorded, Workshop

READY_MARKS = 3  # by then gputop has looked at every program that ran before it


Line = tuple[str, int, str]


def python(minor: int) -> str:
    found = interpreter(minor)
    if found is None:
        skip_without(minor, f"Python 3.{minor}")
    return found


# an interpreter that is new is looked into while it runs; it sees the breakpoint of the probe in its own code
MEET = """
import ctypes, os, time
begin = ctypes.cast(ctypes.pythonapi.Py_RunMain, ctypes.c_void_p)
while ctypes.string_at(begin, 1) != b"\\xcc":
    time.sleep(0.01)
time.sleep(float(os.environ["STAYS_S"]))
"""
STAYS_S = ("0", "2", "4")  # in each attempt: where the breakpoint is somebody else's, ours comes meanwhile


def meetings(interpreters: Iterable[str]) -> dict[str, list[str]]:
    """Programs of a recording: each lasts until its interpreter is known; the next one has all its lines."""
    return {f"meets {path}": [path, "-c", MEET] for path in interpreters}


def recorded(
    folder: Path, programs: Mapping[str, Sequence[str]], without: Collection[str] = ()
) -> dict[str, Recorded]:
    """Records programs behind each other, each with its interpreter known by then.

    Where somebody else's gputop is there, its breakpoint may be what a program has met, and ours came later:
    where lines are missing then, it is done again, with more time. It is also done again where gputop
    itself accounts for all missing calls, as lost or of unknown line: a slow machine has kept it from its CPU
    until a ring was full. A line with more calls than were made has no such excuse.

    Args:
        folder: For all files.
        programs: Their words by a name, those of ``meetings`` among them.
        without: Names of those that need not have lines.
    """
    for stays_s in STAYS_S:
        place = folder / f"stays{stays_s}"
        place.mkdir()
        runs = Workshop(place, lines="slow").record_all(programs, STAYS_S=stays_s)
        named = [run for name, run in runs.items() if name not in without]
        if any(map(_has_too_many, named)):
            break
        missing = any(count for run in named for count in _missing(run).values())
        if not _are_told_missing(named) and not (missing and others_probe()):
            break
    return runs


def _has_too_many(run: Recorded) -> bool:
    """Whether a line of it has more calls than were made there."""
    return any(seen(run.process(line["pid"])) - counted(line["lines"]) for line in run.said)


def _missing(run: Recorded) -> dict[int, int]:
    """Process -> how many calls of it have no line."""
    return {
        line["pid"]: counted(line["lines"]).total() - seen(run.process(line["pid"])).total()
        for line in run.said
    }


def _are_told_missing(runs: Sequence[Recorded]) -> bool:
    """Whether gputop says that it lost calls or does not know their lines, and of all that are missing."""
    recording = runs[0]  # of all of them
    missing = {pid: count for run in runs for pid, count in _missing(run).items()}
    unknown = {process["pid"]: process["unknown_lines"] for process in recording.stats["processes"]}
    untold = [count - unknown[pid] for pid, count in missing.items()]
    told = recording.lost > 0 or any(unknown.values())
    return told and min(untold, default=0) >= 0 and sum(untold) <= recording.lost_calls


def known(workshop: Workshop) -> bool:
    """Whether the interpreter of a program that runs already is known to its recorder."""
    return marks(workshop.file) >= READY_MARKS


def reads_its_input(pid: int) -> bool:
    """Whether a program has come so far that it waits for a line."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[:2] == ["0", "0x0"]


def counted(lines: list[list[object]]) -> Counter[Line]:
    return Counter({(str(file), int(str(line)), str(name)): count for file, line, name, count in lines})  # type: ignore[misc]


def seen(process: dict[str, object]) -> Counter[Line]:
    """What gputop says of a process; the runtime's calls of one kind only."""
    found: Counter[Line] = Counter()
    for row in process["lines"]:  # type: ignore[attr-defined]
        assert row["api"] == "cudaDeviceSynchronize"
        found[row["file"], row["line"], row["function"]] += row["count"]
    return found


def assert_all_right(run: Recorded, processes: int) -> None:
    assert run.lost == 0
    assert len(run.said) == processes
    for line in run.said:
        process = run.process(line["pid"])
        assert seen(process) == counted(line["lines"])
        assert process["unknown_lines"] == 0
