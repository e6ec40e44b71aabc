"""An hour of others' programs that come and go, each with libraries of its own: gputop takes no more for it.

``GPUTOP_OTHERS_MINUTES`` for another length; ten are enough for a look.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import pytest

from gputop.simgpu import ensure_built
from probes import api
from probes.code import interpreter, libraries
from probes.ebpf.quota import FEW
from probes.files import maps
from probes.proc.procfs import descendants
from tests.gputop_command import GPUTOP_APART
from tests.waiting import HANGS_S, wait_until

MINUTES = float(os.environ.get("GPUTOP_OTHERS_MINUTES", "60"))
AT_A_TIME, EACH_S, USERS = 3, 0.15, 40
# eight keep functions of files, one starts readers, one takes names apart, three threads ask at a time
MOST_CHILDREN = 14
MORE_BYTES = 32 << 20  # in the last third than in the one before
# what a library takes: its file, the copy that knows it again, the link of its calls; of a driver ten more,
# which name kernels; of NCCL two, which see communicators joined
OF_LAYER = {api.RUNTIME: 3, api.DRIVER: 13, api.NCCL: 5}
INTERPRETER, LOADER = "interpreter", "loader"  # two links and one
OF_KIND = OF_LAYER | {INTERPRETER: 2, LOADER: 1}
# what stays probed for the next program, of each kind
KEPT = FEW * (max(OF_LAYER.values()) + OF_KIND[INTERPRETER] + OF_KIND[LOADER])
# eight files that functions are looked up in, each with its process; three threads ask at a time, with a file
NAMED = 8 * 2 + 3 * 3
LOADED_S = 10.0  # until the programs that look for lines are there, which come after the recording's begin
LATE_S = 15.0  # until a library that no process maps is let go of: 5 s, and more where looking takes long
PYTHON = os.path.realpath("/usr/bin/python3")
LOADER_FILE = os.path.realpath("/lib64/ld-linux-x86-64.so.2")
PROGRAM = """
import ctypes, os, sys, time
os.setuid(int(sys.argv[2]))
cuda, place = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
for _ in range(300):
    cuda.cudaMalloc(ctypes.byref(place), 4096)
    cuda.cudaFree(place)
time.sleep(0.3)
"""


@dataclass(frozen=True)
class Use:
    """What a process takes, and what it may take for the libraries that processes map."""

    memory: int
    descriptors: int
    children: int
    allowed: int = 0


class Mapped:
    """What any process of this machine has mapped lately: other tests load theirs meanwhile."""

    def __init__(self) -> None:
        self._last: dict[tuple[tuple[int, int], str], float] = {}

    def allowed(self) -> int:
        """Descriptors that they may take, with those that stay probed for the next program."""
        now = time.monotonic()
        for pid in libraries.all_pids():
            for mapping in maps.read(pid, lambda rights, path: "x" in rights and bool(kind(path))):
                self._last[mapping.file, kind(mapping.path)] = now
        self._last = {key: seen for key, seen in self._last.items() if seen > now - LATE_S}
        return sum(OF_KIND[kind] for _file, kind in self._last) + KEPT + NAMED


@functools.lru_cache(4096)
def kind(path: str) -> str:
    """What a file is that gputop probes, by its name; "" for others."""
    name = libraries.file_name(path)
    if (known := libraries.classify(name)) is not None:
        return known[0]
    return INTERPRETER if interpreter.may_be(name) else LOADER if name.startswith("ld-") else ""


def use_of(pid: int) -> Use:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Use(
        pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd")), len(descendants((pid,))) - 1
    )


@pytest.mark.ebpf
@pytest.mark.long
def test_others_programs_that_come_and_go_take_nothing_for_good(tmp_path: Path) -> None:
    built, uses, mapped = ensure_built(), list[Use](), Mapped()
    words = ["record", "-o", str(tmp_path / "rec"), "--max-size", "20M", "--keep", "3"]
    gputop = subprocess.Popen([*GPUTOP_APART, *words], stderr=subprocess.PIPE, text=True)
    running: deque[tuple[subprocess.Popen[bytes], Path]] = deque()
    try:
        wait_until((tmp_path / "rec" / "00001.gputop").exists, "the recording begins")
        time.sleep(LOADED_S)
        until, number, begun = time.monotonic() + 60 * MINUTES, 0, use_of(gputop.pid).descriptors
        while time.monotonic() < until:
            number += 1
            folder = tmp_path / f"program-{number}"
            folder.mkdir()
            library = built / "libcudart.so.12"
            if number % 4 == 0:  # as a container or a new environment has it
                library = Path(shutil.copy(library, folder))
            variables = os.environ | {"LD_LIBRARY_PATH": str(built), "SIMGPU_STATE": str(tmp_path / "state")}
            python = [PYTHON]
            if number % 8 == 0:  # with an interpreter and a loader, too
                python = [str(shutil.copy(file, folder)) for file in (LOADER_FILE, PYTHON)]
                variables["PYTHONHOME"] = "/usr"
            command = [*python, "-c", PROGRAM, str(library), str(50_000 + number % USERS)]
            running.append((subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL), folder))
            if len(running) > AT_A_TIME:
                ended, where = running.popleft()
                ended.wait()
                shutil.rmtree(where)
            time.sleep(EACH_S)
            uses.append(replace(use_of(gputop.pid), allowed=begun + mapped.allowed()))
        gputop.send_signal(signal.SIGINT)
        _, said = gputop.communicate(timeout=HANGS_S)
        assert gputop.returncode == 0, said
    finally:
        gputop.kill()
        for ended, _where in running:
            ended.kill()
            ended.wait()
    third = len(uses) // 3
    before, after = uses[third : 2 * third], uses[2 * third :]
    print(f"{number} programs")
    for at in range(20):
        part = uses[at * len(uses) // 20 : (at + 1) * len(uses) // 20]
        memory, files, children, allowed = (max(row) for row in zip(*map(astuple, part), strict=True))
        minute = (at + 1) * MINUTES / 20
        print(
            f"{minute:5.1f} min: {memory >> 20} MB, {files} descriptors of {allowed}, {children} children",
            flush=True,
        )
    assert max(use.children for use in uses) <= MOST_CHILDREN
    assert [use for use in uses if use.descriptors > use.allowed] == []
    assert max(use.memory for use in after) <= max(use.memory for use in before) + MORE_BYTES
