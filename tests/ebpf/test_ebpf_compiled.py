"""The programs that gputop loads are those that bcc would load; the second time, nothing is compiled."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.ebpf import bpfcall, loader
from probes.ebpf.build import compiled
from probes.ebpf.module import Module, late, outside, value
from probes.stacks import programs
from tests.ebpf.recording import TIMEOUT_S

pytestmark = pytest.mark.ebpf

SMALL = "BPF_ARRAY(counts, u64, 1); int probe(void *context) { u32 row = 0; return !counts.lookup(&row); }"
# what the kernel says of each program and map that is loaded; where the programs are kept comes from outside
OURS = """
import json, os, sys
from pathlib import Path
from probes.ebpf.build import bpf_cache
from probes.ebpf import bpfcall
from probes.ebpf.build import btf
from probes.ebpf import loader
from probes.stacks import programs
bpf_cache.ROOTS = Path(sys.argv[1])
main = loader.load(loader.Options(True, 1 << 20, int(sys.argv[2])))
lines = programs.load(main)
modules = (main.module, lines.module)
found = {program: fd for part in (main, lines) for program, fd in part.uprobes.items()}
for part, of in ((main, loader), (lines, programs)):
    found |= {of.TRACEPOINTS[point]: fd for point, fd in part.tracepoints.items()}
print(json.dumps({
    "cached": [module.compiled.cached for module in modules],
    "compiler": [line for line in open("/proc/self/maps") if "libbcc" in line or "LLVM" in line],
    "said": {name: open(f"/proc/self/fdinfo/{fd}").read() for name, fd in found.items()},
}))
"""
# the same by bcc itself
BCC = """
import json, os, sys
from probes.ebpf import bpfcall
from probes.ebpf.build import compiled
from probes.ebpf.build import compiler
from probes.ebpf import loader
from probes.ebpf.module import value
os.environ["BCC_KERNEL_SOURCE"] = str(compiled.SHIM)
bcc = compiler.import_bcc()
# bcc knows no addresses of values, and the digest does not tell of which map one is
slots = bpfcall.create_map("slots", 2, 4, 4 * loader.SLOTS, 1, 0)
text = sys.stdin.read().replace(value(0), f"bpf_pseudo_fd(2, {slots})")
module = bcc.BPF(text=text, cflags=list(compiler.FLAGS))
kinds = {name: bcc.BPF.KPROBE for name in loader.UPROBES}
kinds |= {name: bcc.BPF.RAW_TRACEPOINT for name in loader.TRACEPOINTS.values()}
found = {name: module.load_func(name.encode(), kind).fd for name, kind in kinds.items()}
found |= {name: module[name.encode()].map_fd for name in loader.MAPS}
print(json.dumps({name: open(f"/proc/self/fdinfo/{fd}").read() for name, fd in found.items()}))
"""


def python(script: str, *arguments: str, text: str = "") -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def facts(fdinfo: str) -> dict[str, str]:
    """What makes a program or map what it is; ``prog_tag`` is the kernel's digest of the instructions."""
    wanted = "prog_type|prog_tag|map_type|key_size|value_size|max_entries|map_flags"
    return dict(re.findall(rf"^({wanted}):\s+(\S+)$", fdinfo, re.M))


@pytest.mark.long
def test_a_second_start_loads_the_same_programs_and_no_compiler(tmp_path: Path) -> None:
    first, second, other = (python(OURS, str(tmp_path / "bpf"), pid) for pid in ("1", "1", "70000"))
    assert [run["cached"] for run in (first, second, other)] == [[False] * 2, [True] * 2, [True] * 2]
    assert first["compiler"] == second["compiler"] == [], "it was another process"
    calls = loader.CALLS_OF_SESSIONS if "on_call" in first["said"] else loader.CALLS
    points = [*loader.TRACEPOINTS.values(), *programs.TRACEPOINTS.values()]
    assert sorted(first["said"]) == sorted([*calls, *loader.RARE, *programs.UPROBES, *points])
    for name, said in first["said"].items():
        assert facts(said)["prog_tag"]
        assert facts(said) == facts(second["said"][name])
    know_pid = {name for name, said in first["said"].items() if facts(said) != facts(other["said"][name])}
    assert {calls[0], "on_python"} <= know_pid
    assert "on_switch" not in know_pid


@pytest.mark.long
def test_programs_and_maps_are_those_that_bcc_itself_would_load() -> None:
    # as for older kernels: bcc knows no tracepoints whose arguments have types
    text = loader.source_text(loader.Options(True, 1 << 20, 1), as_old=True).replace(late(0), "70000")
    by_bcc = python(BCC, text=text)
    module, uprobes, points, maps = loader.load_text(
        text, loader.UPROBES, loader.TRACEPOINTS, loader.MAPS, multi=False, values=loader.VALUES
    )
    ours = uprobes | {name: points[point] for point, name in loader.TRACEPOINTS.items()} | maps
    try:
        assert set(ours) == set(by_bcc)
        for name, fd in ours.items():
            said = facts(Path(f"/proc/self/fdinfo/{fd}").read_text())
            assert said == facts(by_bcc[name]), name
            assert len(said) == (2 if name.startswith("on_") else 5)
    finally:
        module.close()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Module]:
    """A text with a map of its own, whose first element is 40."""
    module = Module(compiled.compiled(SMALL, tmp_path / "bpf"))
    bpfcall.update(module.maps["counts"], bytes(4), (40).to_bytes(8, "little"))
    yield module
    module.close()


def test_a_text_reaches_another_one_s_map_and_numbers_that_come_late(owner: Module, tmp_path: Path) -> None:
    text = (
        "int probe(void *context) { u32 row = 0; "
        f"u64 *count = bpf_map_lookup_elem_(bpf_pseudo_fd(1, {outside(0)}), &row); "
        f"return count ? *count + {late(1)} : 0; }}"
    )
    module = Module(compiled.compiled(text, tmp_path / "bpf"), (7, 2), [owner.maps["counts"]])
    program = module.load("probe", bpfcall.ProgramType.RAW_TRACEPOINT)
    assert returned_by(program) == 42
    module.close()


def test_a_text_knows_the_address_of_a_map_s_only_value(tmp_path: Path) -> None:
    text = (
        "BPF_ARRAY(first, u64, 1); BPF_ARRAY(counts, u64, 1);"
        f"int probe(void *context) {{ return ++*(u64 *){value(1)}; }}"
    )
    module = Module(compiled.compiled(text, tmp_path / "bpf"), values=("first", "counts"))
    bpfcall.update(module.maps["counts"], bytes(4), (41).to_bytes(8, "little"))
    program = module.load("probe", bpfcall.ProgramType.RAW_TRACEPOINT)
    assert returned_by(program) == 42
    assert returned_by(program) == 43
    module.close()


def returned_by(program: int) -> int:
    """What a program returns when the kernel runs it (BPF_PROG_TEST_RUN)."""
    attribute = (ctypes.c_uint32 * 32)(program)
    assert ctypes.CDLL(None).syscall(321, 10, ctypes.byref(attribute), ctypes.sizeof(attribute)) == 0
    return attribute[1]


def test_on_a_full_disk_they_are_compiled_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "bpf"
    folder.mkdir(0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "none", str(folder)], check=True)
    try:
        (folder / "full").write_bytes(bytes(4096))
        made = compiled.compiled(SMALL, folder)
        assert made.problem == f"{folder} cannot be written: No space left on device"
        assert os.listdir(folder) == ["full"]
        Module(made).close()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_why_a_program_is_refused_is_told_with_the_end_of_what_the_verifier_says() -> None:
    text = "int probe(struct pt_regs *context) { return *((u64 *)context + 500); }"
    with pytest.raises(loader.ProbeError, match="take the probes: probe: Permission denied") as refusal:
        loader.load_text(text, ("probe",), {}, (), multi=False)
    assert any("invalid bpf_context access" in line for line in refusal.value.log)


def test_why_a_text_does_not_compile_is_reported(tmp_path: Path) -> None:
    with pytest.raises(compiled.CompileError, match="undeclared identifier 'nonsense'") as refusal:
        compiled.compiled("int probe(void *context) { return nonsense; }", tmp_path / "bpf")
    assert len(refusal.value.log) > 1
    assert not os.listdir(tmp_path / "bpf")
