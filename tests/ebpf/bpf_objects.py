"""What BPF links and programs exist, by bpftool and the kernel's own words about open files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import skip_or_fail


@dataclass(frozen=True)
class BpfObjects:
    """Numbers of links and programs."""

    links: frozenset[int]
    programs: frozenset[int]

    def __and__(self, other: BpfObjects) -> BpfObjects:
        return BpfObjects(self.links & other.links, self.programs & other.programs)

    def __bool__(self) -> bool:
        return bool(self.links or self.programs)


def others_probe(*own: int) -> bool:
    """Whether a process besides these probes functions: somebody else's gputop, which may probe ours too."""
    told = (path for path in Path("/proc").glob("[0-9]*") if int(path.name) not in own)
    return any(_holds(process, "link_type:\tuprobe_multi") for process in told)


def _holds(process: Path, words: str) -> bool:
    with suppress(OSError):  # it has ended
        for file in (process / "fdinfo").iterdir():
            with suppress(OSError):
                if words in file.read_text():
                    return True
    return False


def held_by(pid: int) -> BpfObjects:
    """What a process holds open."""
    links: set[int] = set()
    programs: set[int] = set()
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = path.read_text()
        except OSError:  # closed meanwhile
            continue
        found = {
            name: int(number) for name, number in re.findall(r"^(link_id|prog_id):\s+(\d+)$", text, re.M)
        }
        if "link_id" in found:
            links.add(found["link_id"])
        if "prog_id" in found:
            programs.add(found["prog_id"])
    return BpfObjects(frozenset(links), frozenset(programs))


def existing() -> BpfObjects:
    """What exists in the kernel."""
    if shutil.which("bpftool") is None:
        skip_or_fail("bpftool not found: apt-get install bpftool")
    return BpfObjects(_listed("link"), _listed("prog"))


def _listed(kind: str) -> frozenset[int]:
    """bpftool gives up when an object vanishes between its number and its description: ask again."""
    for _ in range(20):
        told = subprocess.run(["bpftool", "-j", kind, "list"], capture_output=True, text=True, check=False)
        if told.returncode == 0:
            return frozenset(int(row["id"]) for row in json.loads(told.stdout))
        time.sleep(0.05)
    raise AssertionError(f"bpftool {kind} list: {told.stderr}")
