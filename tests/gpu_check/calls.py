"""Whether calls are counted as the program makes them, and what tracing them costs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.gpu_check.machine import Machine, Program
from tests.gpu_check.truth import Profile

COUNT, TIMED, TURNS = 2000, 1000, 3
DYNSYM, STRTAB_LINK = 11, 40  # sh_type, offset of sh_link in a section header of ELF64


def imported(path: Path) -> set[str]:
    """The functions of CUDA that a library imports."""
    with path.open("rb") as file:
        head = file.read(64)
        (offset,) = struct.unpack_from("<Q", head, 40)
        size, count = struct.unpack_from("<HH", head, 58)
        file.seek(offset)
        sections = [file.read(size) for _ in range(count)]
        names: set[str] = set()
        for section in sections:
            if struct.unpack_from("<I", section, 4)[0] != DYNSYM:
                continue
            symbols = _content(file, section)
            strings = _content(file, sections[struct.unpack_from("<I", section, STRTAB_LINK)[0]])
            for name, _info, _other, where, _value, _size in struct.iter_unpack("<IBBHQQ", symbols):
                if not where and name:
                    names.add(strings[name : strings.index(b"\0", name)].decode())
    return {name for name in names if name.startswith("cuda") or (name[:2] == "cu" and name[2:3].isupper())}


def _content(file: Any, section: bytes) -> bytes:
    offset, size = struct.unpack_from("<QQ", section, 24)
    file.seek(offset)
    return bytes(file.read(size))


def check(machine: Machine) -> dict[str, Any]:
    """``gputop check``, while a program uses the GPU: what is missing, and which functions are traced."""
    program = Program(machine, "calls.py")
    try:
        program.ask("count", 1)  # its libraries are loaded then
        program.answer()
        report = machine.json("check", ok=(0, 1))
        with open(f"/proc/{program.pid}/maps") as maps:
            mapped = {line.split()[-1] for line in maps if "/" in line}
    finally:
        program.close()
    traced = {symbol["name"] for library in report["libraries"] for symbol in library["symbols"]}
    torch = [Path(path) for path in mapped if Path(path).name in ("libtorch_cuda.so", "libc10_cuda.so")]
    used = set().union(*map(imported, torch)) if torch else set()
    gpus = report["nvml"]["gpus"]
    libraries = {
        f"{one['soname']} {one['version']} ({one['layer']}, {len(one['symbols'])} functions)"
        for one in report["libraries"]
        if one["pids"] and not one["error"]
    }
    return {
        "live": report["live"],
        "kernel": report["kernel"]["release"],
        "driver": report["nvml"]["driver"],
        "gpus": [gpu["name"] for gpu in gpus],
        "missing": [fact["text"] for fact in report["facts"] if fact["status"] == "missing"],
        "unavailable": {
            key: why for gpu in report["nvml"]["gpus"] for key, why in gpu["unavailable"].items()
        },
        "libraries": sorted(libraries),
        "torch uses": len(used),
        "of them traced": len(used & traced),
        "not traced": sorted(used - traced),
    }


def counts(machine: Machine) -> dict[str, Any]:
    """Calls as the program made them beside those that were recorded, by function."""
    recording = machine.folder / "calls.msgpack"
    program = Program(machine, "calls.py")
    try:
        with machine.recorded(recording, program.pid):
            program.ask("count", COUNT)
            made = program.answer()["counts"]
    finally:
        program.close()
    stats = machine.json("stats", str(recording))
    rows = [row for process in stats["processes"] for row in process["calls"]]
    own = {row["api"]: row["count"] for row in rows if not row["nested"]}
    return {
        "made": made,
        "counted": {name: own.get(name, 0) for name in made},
        "nested": {row["api"]: row["count"] for row in rows if row["nested"]},
        "right": all(own.get(name, 0) == count for name, count in made.items()),
        "lost": stats["lost"]["events"],
    }


def _turns(machine: Machine, program: Program, *ask: object) -> Iterator[tuple[Any, Any]]:
    """What a phase answers without gputop and with it, in turns."""
    for _ in range(TURNS):
        program.ask(*ask)
        quiet = program.answer()
        with machine.recorded(machine.folder / "turn.msgpack", program.pid):
            program.ask(*ask)
            traced = program.answer()
        yield quiet, traced


def costs(machine: Machine) -> dict[str, Any]:
    """What a call costs without gputop and what it adds, ns, medians of turns; Python's part is in both."""
    program = Program(machine, "calls.py")
    try:
        turns = [(quiet["ns"], traced["ns"]) for quiet, traced in _turns(machine, program, "time", TIMED)]
    finally:
        program.close()
    return {
        name: {
            "quiet_ns": round(median(quiet[name] for quiet, _ in turns), 1),
            "added_ns": round(median(traced[name] - quiet[name] for quiet, traced in turns), 1),
        }
        for name in turns[0][0]
    }


def slowdown(machine: Machine, name: str, seconds: float = 2.0) -> float:
    """How much longer a training step takes while it is recorded, as a ratio; median of turns."""
    program = Program(machine, "training.py", name, "before")
    try:
        program.begin()
        turns = list(_turns(machine, program, "run", seconds))
    finally:
        program.close()
    return round(median(_unit_ns(traced) / _unit_ns(quiet) for quiet, traced in turns), 4)


def _unit_ns(clock: dict[str, int]) -> float:
    return (clock["ended"] - clock["began"]) / max(clock["units"], 1)


def constants(machine: Machine) -> dict[str, Any]:
    """What the constants of the proofs stand for, on this GPU: percentiles, ns; rates, bytes a ns."""
    found: dict[str, Any] = {}
    program = Program(machine, "calls.py")
    try:
        program.ask("copies")
        found["copy rates"] = {name: round(rate, 2) for name, rate in program.answer()["rates"].items()}
    finally:
        program.close()
    if machine.simulated:
        return found
    for name, side in (("launches", "before"), ("numpy-sync", "before")):
        trace = machine.folder / "profile.json"
        trace.unlink(missing_ok=True)
        program = Program(machine, "training.py", name, side)
        try:
            program.begin()
            program.ask("profile", 40, trace)
            program.answer()
        finally:
            program.close()
        profile = Profile.read(trace)
        found[name] = {
            "launch to begin": _spread(profile.starts_ns()),
            "end to return": _spread(profile.ends_ns()),
            "wait for nothing": _spread(profile.idle_waits_ns()),
        }
    return found


def _spread(values: Any) -> dict[str, float]:
    if not len(values):
        return {}
    p50, p99 = np.percentile(values, (50, 99))
    return {
        "count": len(values),
        "p50": round(float(p50)),
        "p99": round(float(p99)),
        "most": round(float(np.max(values))),
    }
