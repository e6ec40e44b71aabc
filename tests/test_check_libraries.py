"""What `gputop check` says of a library, and that calling one gives its code no rights."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.checks import check_libraries, check_tracing, selfhit
from gputop.checks.check_libraries import SelfHit
from gputop.checks.fact import MISSING, NOTE, OK
from probes import api
from probes.code.libraries import Target
from tests.check_facts import CUDART, texts


def test_a_library_is_described_by_file_version_and_users() -> None:
    section = check_libraries.libraries_section([CUDART])
    (data,) = section.data
    assert data == {
        "path": "/opt/libcudart.so.12",
        "device": "254:0",
        "inode": 7,
        "build_id": "0123456789abcdef",
        "soname": "libcudart.so.12",
        "version": "12.9",
        "layer": "runtime",
        "linkage": "shared",
        "pids": [4, 5],
        "error": "",
        "symbols": [
            {"name": "cudaMalloc", "offset": 64, "site": "cheap", "hits": 3},
            {"name": "cudaHostAlloc", "offset": 128, "site": "single-stepped", "hits": 4},
        ],
        "self_hit": {"symbol": "cudaRuntimeGetVersion", "calls": 5, "counted": 5, "error": ""},
    }
    assert "2 functions: 1 cheap, 1 single-stepped; 7 hits" in texts(section, OK)
    assert "mapped by 4, 5" in texts(section, NOTE)


def test_without_uprobe_multi_only_the_minimal_functions_count_as_traced() -> None:
    section = check_libraries.libraries_section([CUDART], all_traced=False)
    assert [symbol["name"] for symbol in section.data[0]["symbols"]] == ["cudaMalloc"]


def test_a_self_hit_that_was_not_counted_stops_live_tracing() -> None:
    section = check_libraries.libraries_section(
        [replace(CUDART, self_hit=SelfHit("cudaRuntimeGetVersion", 5, 4))]
    )
    assert section.blocks
    assert "only 4 counted" in texts(section, MISSING)


def test_a_probe_that_the_kernel_refuses_stops_live_tracing_unless_others_count() -> None:
    refused = replace(CUDART, self_hit=SelfHit("cudaRuntimeGetVersion", 0, 0, "no such luck", refused=True))
    assert check_libraries.libraries_section([refused]).blocks
    section = check_libraries.libraries_section([refused, CUDART])
    assert not section.blocks
    assert "no such luck" in texts(section, MISSING)


def test_a_library_whose_process_ends_during_the_check_does_not_stop_live_tracing(tmp_path: Path) -> None:
    """It was read when the check began, and its path leads nowhere when its probe is due."""
    gone = replace(CUDART.target, path=tmp_path / "libcudart.so.12")

    class NoProbes:
        def attach(self, path: Path, offsets: list[int], first_row: int) -> None:
            raise AssertionError("there is nothing to be probed")

    counted = check_tracing.CountedFile(gone.path, gone.identity, CUDART.symbols, CUDART.witness, 0)
    without = check_tracing.attach_to(NoProbes(), counted)  # type: ignore[arg-type]
    found = check_tracing.with_hits(
        check_tracing.with_self_hit(CUDART, without, call_all=False), counted, [0, 0, 0]
    )
    section = check_libraries.libraries_section([found])
    assert not section.blocks
    assert "run the check again" in "".join(fact.fix for fact in section.facts)
    assert "went away during the check (No such file or directory)" in texts(section, NOTE)
    assert [symbol.hits for symbol in found.symbols] == [symbol.hits for symbol in CUDART.symbols], "not 0"


def test_a_library_that_could_not_be_called_is_a_note() -> None:
    hit = SelfHit("cudaRuntimeGetVersion", 0, 0, "version `GLIBC_2.99' not found")
    section = check_libraries.libraries_section([replace(CUDART, self_hit=hit)])
    assert not section.blocks
    assert "GLIBC_2.99" in texts(section, NOTE)


def test_a_stripped_static_runtime_is_called_blind() -> None:
    blind = replace(CUDART, linkage=check_libraries.STRIPPED, symbols=(), witness=None, self_hit=None)
    section = check_libraries.libraries_section([blind])
    assert "runtime layer blind" in texts(section, NOTE)
    assert not section.blocks


def test_a_damaged_library_is_missing_and_the_others_go_on(tmp_path: Path) -> None:
    damaged = tmp_path / "libcuda.so.1"
    damaged.write_text("not a library")
    found = check_libraries.find((), {"LD_LIBRARY_PATH": str(tmp_path)})
    assert found == [], "only libraries of these processes"
    identity = damaged.stat().st_dev, damaged.stat().st_ino
    broken = check_libraries.look(Target(damaged, str(damaged), identity, api.DRIVER, 1))
    section = check_libraries.libraries_section([broken, CUDART])
    assert not section.blocks
    assert "ELF" in texts(section, MISSING)


def test_no_library_at_all_is_no_fault() -> None:
    section = check_libraries.libraries_section([])
    assert not section.blocks
    assert "no CUDA or NCCL library found" in texts(section, NOTE)


@pytest.mark.parametrize(
    ("layer", "number", "shown"),
    [("runtime", 12090, "12.9"), ("driver", 13000, "13.0"), ("nccl", 22803, "2.28.3"), ("runtime", 0, "")],
)
def test_versions_are_shown_as_people_write_them(layer: str, number: int, shown: str) -> None:
    assert selfhit.shown_version(layer, number) == shown


def build(folder: Path, body: str) -> Path:
    """A library whose cudaRuntimeGetVersion has this body."""
    source = folder / "fake.c"
    source.write_text(
        "#include <unistd.h>\n#include <string.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        f"int cudaRuntimeGetVersion(int *version) {{ {body} return 0; }}\n"
    )
    path = folder / "libcudart.so.12"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return path


READ_CAPABILITIES = """
char line[256]; FILE *file = fopen("/proc/self/status", "r");
while (fgets(line, sizeof line, file))
    if (!strncmp(line, "CapEff:", 7)) *version = strtoull(line + 7, 0, 16) ? 1 : 42;
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody needs root")
def test_what_others_may_have_written_never_runs_as_root(tmp_path: Path) -> None:
    library = build(tmp_path, "*version = getuid() == 65534 && getgid() == 65534 ? 42 : 1;")
    library.chmod(0o644)
    assert selfhit.call(library, "cudaRuntimeGetVersion").version == 42
    assert selfhit.call(build(tmp_path, READ_CAPABILITIES), "cudaRuntimeGetVersion").version == 42
    library.chmod(0o660)
    assert selfhit.call(library, "cudaRuntimeGetVersion").calls == 0


def test_a_library_that_does_not_load_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "libcudart.so.12"
    path.write_text("junk")
    done = selfhit.call(path, "cudaRuntimeGetVersion")
    assert (done.calls, done.version) == (0, 0)
    assert "file too short" in done.error or "ELF" in done.error


def test_a_library_of_a_process_that_ends_during_the_check_is_not_missing(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    place = Path(f"/proc/{ended.pid}/root/opt/libcuda.so.1")
    section = check_libraries.libraries_section(
        [check_libraries.look(Target(place, "/opt/libcuda.so.1", (1, 2), api.DRIVER, 1), (ended.pid,))]
    )
    assert texts(section, MISSING) == ""
    assert "/opt/libcuda.so.1 went away during the check" in texts(section, NOTE)
