"""`gputop check` says what is missing and what to type; on recorded facts, as no machine lacks everything."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.checks import (
    check_bcc,
    check_kernel,
    check_libraries,
    check_nvml,
    check_report,
    check_rights,
    check_tracing,
)
from gputop.checks.check_libraries import SelfHit
from gputop.checks.distribution import read_distribution
from gputop.checks.fact import MISSING, NOTE, OK, Fact, Section, missing, ok
from probes.ebpf import bpfcall
from probes.ebpf.build import btf, compiler
from probes.ebpf.rights import Rights
from tests.check_facts import ALL_RIGHTS, CUDART, DEBIAN, NEW_KERNEL, NO_RIGHTS, texts
from tests.cli_support import assert_one_sentence, run
from tests.json_page import assert_valid

ROOT = Path(__file__).resolve().parent.parent


def machine(**changes: Any) -> Section:
    return check_kernel.kernel_section(replace(NEW_KERNEL, **changes))


# -- the kernel ---------------------------------------------------------------------------------


def test_a_new_kernel_with_type_information_is_enough() -> None:
    section = machine()
    assert not section.blocks
    assert "uprobe_multi" in texts(section, OK)
    assert texts(section, MISSING) == ""


@pytest.mark.parametrize(
    ("release", "multi", "path"),
    [("6.6.0", True, "uprobe_multi"), ("6.5.0-27-generic", False, "perf"), ("5.15.0-1", False, "perf")],
)
def test_what_the_kernel_itself_answers_decides_how_functions_are_probed(
    monkeypatch: pytest.MonkeyPatch, release: str, multi: bool, path: str
) -> None:
    monkeypatch.setattr("platform.release", lambda: release)
    monkeypatch.setattr("probes.ebpf.bpfcall.has_uprobe_multi", lambda: multi)
    assert check_kernel.read_kernel({}).path == path


# what bpf(2) says to the question, as older and newer kernels do: the program, then the link to a folder
@pytest.mark.parametrize(
    ("answers", "known"),
    [
        ((3, errno.EBADF), True),
        ((3, errno.EINVAL), False),
        ((errno.EINVAL,), False),
        ((errno.EPERM,), None),
        ((errno.EACCES,), None),
        ((3, errno.EPERM), None),
    ],
)
def test_a_kernel_that_does_not_let_us_ask_has_not_answered(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[int, ...], known: bool | None
) -> None:
    left = list(answers)

    def bpf(_command: int, _attribute: object) -> int:
        answer = left.pop(0)
        if answer == 3:
            return os.open("/dev/null", os.O_RDONLY)
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr("probes.ebpf.bpfcall.bpf_call", bpf)
    assert bpfcall.has_uprobe_multi() is known


@pytest.mark.parametrize(
    ("release", "way"),
    [("5.15.0-1", "perf-event uprobes"), ("6.5.0-27", "perf-event"), ("6.6.0", "uprobe_multi")],
)
def test_without_rights_no_way_of_attaching_is_claimed(
    monkeypatch: pytest.MonkeyPatch, release: str, way: str
) -> None:
    monkeypatch.setattr("platform.release", lambda: release)
    monkeypatch.setattr("probes.ebpf.bpfcall.has_uprobe_multi", lambda: None)
    found = check_kernel.read_kernel({})
    assert found.path == "untried"
    said = texts(check_kernel.kernel_section(found), NOTE)
    assert f"by its version {way}" in said
    assert "cannot be tried without rights" in said
    assert check_kernel.read_kernel({"GPUTOP_ATTACH": "perf"}).path == "perf", "asked for"


def test_a_kernel_before_5_15_is_named_as_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once: its type information is complete for what it is, although it lacks what 5.14 brought."""
    vmlinux = tmp_path / "vmlinux"
    vmlinux.write_bytes(b"\x9f\xeb but without task_struct.__state" + bytes(24))
    monkeypatch.setattr(btf, "VMLINUX", vmlinux)
    monkeypatch.setattr("platform.release", lambda: "5.10.0-28-amd64")
    section = check_kernel.kernel_section(check_kernel.read_kernel({}))
    assert section.blocks
    (said,) = [fact.text for fact in section.facts if fact.status == MISSING]
    assert said == "Linux 5.15 or later is needed for live tracing, this is 5.10.0-28-amd64"


def test_a_forced_way_of_attaching_is_reported() -> None:
    section = check_kernel.kernel_section(check_kernel.read_kernel({"GPUTOP_ATTACH": "perf"}))
    assert "GPUTOP_ATTACH=perf" in texts(section, NOTE)
    assert not section.blocks


def test_a_wrong_way_of_attaching_is_missing_with_its_fix() -> None:
    section = check_kernel.kernel_section(check_kernel.read_kernel({"GPUTOP_ATTACH": "magic"}))
    assert section.blocks
    assert "unset GPUTOP_ATTACH" in texts(section, MISSING)


def test_absent_type_information_is_missing_with_the_kernel_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "btf").mkdir()
    monkeypatch.setattr(btf, "VMLINUX", tmp_path / "btf" / "vmlinux")
    section = check_kernel.kernel_section(check_kernel.read_kernel({}))
    assert section.blocks
    assert "CONFIG_DEBUG_INFO_BTF" in texts(section, MISSING)


def test_a_masked_sys_is_distinguished_from_a_kernel_without_type_information(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(btf, "VMLINUX", tmp_path / "kernel" / "btf" / "vmlinux")
    section = check_kernel.kernel_section(check_kernel.read_kernel({}))
    assert section.blocks
    assert "masked" in texts(section, MISSING)
    assert "-v /sys/kernel:/sys/kernel:ro" in texts(section, MISSING)


def test_tracefs_that_is_not_mounted_stops_nothing() -> None:
    section = machine(tracefs="")
    assert not section.blocks
    assert "tracefs is not mounted: gputop needs none" in texts(section, NOTE)


def test_arm64_is_called_untested_and_other_machines_are_refused() -> None:
    assert "arm64: untested" in texts(machine(architecture="aarch64"), NOTE)
    assert not machine(architecture="aarch64").blocks
    assert machine(architecture="riscv64").blocks


# -- rights -------------------------------------------------------------------------------------


def test_without_root_what_still_works_and_sudo_are_named() -> None:
    section = check_rights.rights_section(NO_RIGHTS)
    assert section.blocks
    assert "sudo" in texts(section, MISSING)
    assert "NVML" in texts(section, NOTE)


def test_two_capabilities_are_enough_and_what_they_leave_out_is_reported() -> None:
    section = check_rights.rights_section(replace(NO_RIGHTS, cap_bpf=True, cap_perfmon=True))
    assert not section.blocks
    assert "not root, but with enough capabilities: CAP_BPF, CAP_PERFMON" in texts(section, OK)
    assert "CAP_SYS_PTRACE" in texts(section, NOTE)


def test_one_capability_of_the_two_is_not_enough_and_the_other_is_named() -> None:
    section = check_rights.rights_section(replace(NO_RIGHTS, cap_bpf=True))
    assert section.blocks
    assert "CAP_PERFMON" in texts(section, MISSING)
    assert "CAP_BPF" not in texts(section, MISSING)


@pytest.mark.parametrize(
    ("mode", "blocks"), [("none", False), ("integrity", False), ("confidentiality", True)]
)
def test_only_lockdown_for_confidentiality_stops_tracing(mode: str, blocks: bool) -> None:
    section = check_rights.rights_section(replace(ALL_RIGHTS, lockdown=mode))
    assert section.blocks is blocks
    assert ("lockdown=integrity" in texts(section, MISSING)) is blocks


def test_a_seccomp_filter_is_reported_with_the_container_s_option() -> None:
    section = check_rights.rights_section(replace(ALL_RIGHTS, seccomp=2))
    assert not section.blocks, "a filter may let bpf(2) through: the trial decides"
    assert "seccomp=unconfined" in texts(section, NOTE)
    assert "seccomp=unconfined" not in texts(check_rights.rights_section(ALL_RIGHTS), NOTE)


@pytest.mark.parametrize(
    ("found", "meaning"),
    [(ALL_RIGHTS, "does not matter with CAP_PERFMON"), (NO_RIGHTS, "not the obstacle")],
)
def test_perf_event_paranoid_is_reported_with_what_it_means(found: Rights, meaning: str) -> None:
    section = check_rights.rights_section(replace(found, perf_event_paranoid=4))
    assert f"perf_event_paranoid is 4: {meaning}" in texts(section, NOTE)


def test_processes_that_proc_hides_are_reported() -> None:
    assert "hidepid" in texts(check_rights.rights_section(replace(ALL_RIGHTS, hidepid=True)), NOTE)


# -- bcc ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", "apt-get install python3-bpfcc"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt-get install python3-bpfcc"),
        ("ID=fedora\n", "dnf install python3-bcc"),
        ("ID=arch\n", "pacman -S python-bcc"),
    ],
)
def test_bcc_that_is_not_there_is_missing_with_this_distribution_s_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str, command: str
) -> None:
    (tmp_path / "os-release").write_text(release)
    monkeypatch.delitem(sys.modules, "bcc", raising=False)
    monkeypatch.setattr(compiler, "BCC_FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    section = check_bcc.bcc_section(check_bcc.read_bcc(), read_distribution(tmp_path / "os-release"))
    assert section.blocks
    (fact,) = section.facts
    assert fact.fix == command
    assert "apt-get" not in fact.text, "the fix is not said twice, and not for another distribution"


def test_pypi_s_bcc_is_named_as_another_package(tmp_path: Path) -> None:
    (tmp_path / "bcc").mkdir()
    (tmp_path / "bcc" / "__init__.py").write_text("")
    unrelated = check_bcc.find_unrelated([str(tmp_path)])
    assert unrelated == str(tmp_path / "bcc")
    section = check_bcc.bcc_section(check_bcc.Bcc("/usr/lib/x", "0.26", "", "", unrelated), DEBIAN)
    assert not section.blocks
    assert "unrelated" in texts(section, NOTE)
    (tmp_path / "bcc" / "libbcc.py").write_text("")
    assert check_bcc.find_unrelated([str(tmp_path)]) == "", "the real one has this file"


# -- tracing, NVML, the whole -------------------------------------------------------------------


def test_what_the_kernel_refuses_is_reported_and_its_log_kept() -> None:
    section = check_tracing.tracing_section(
        check_tracing.Trial(True, error="the kernel said no", log=("R1 invalid",))
    )
    assert section.blocks
    assert "the kernel said no" in texts(section, MISSING)
    assert section.details == ("R1 invalid",)


KEPT = "/var/cache/x"
LOADED = check_tracing.Trial(
    True, 300.0, tracepoints=8, libc=SelfHit("gnu_get_libc_version", 5, 5), cache=KEPT
)


@pytest.mark.parametrize(
    ("trial", "status", "said"),
    [
        (replace(LOADED, cached=True), OK, f"load in 300 ms; an earlier start compiled them into {KEPT}"),
        (LOADED, OK, f"probes compile and load in 300 ms; kept in {KEPT}"),
        (replace(LOADED, cache_problem="it is full"), NOTE, "takes a second: it is full"),
        (replace(LOADED, cache="", cache_problem="no home"), NOTE, "set HOME"),
    ],
)
def test_whether_the_programs_are_kept_is_reported(
    trial: check_tracing.Trial, status: str, said: str
) -> None:
    section = check_tracing.tracing_section(trial)
    assert said in texts(section, status)
    assert not section.blocks
    assert [section.data[key] for key in ("cached", "cache", "cache_problem")] == [
        trial.cached,
        trial.cache,
        trial.cache_problem,
    ]


def test_a_probe_that_never_fires_in_the_c_library_stops_live_tracing() -> None:
    trial = check_tracing.Trial(True, 300.0, tracepoints=8, libc=SelfHit("gnu_get_libc_version", 5, 0))
    assert check_tracing.tracing_section(trial).blocks
    seen = replace(trial, libc=SelfHit("gnu_get_libc_version", 5, 5))
    assert not check_tracing.tracing_section(seen).blocks


def test_nvml_that_is_missing_does_not_stop_live_tracing() -> None:
    section = check_nvml.nvml_section(check_nvml.Nvml("", "", (), "no NVIDIA driver on this machine"), DEBIAN)
    assert not section.blocks
    assert "apt-get install nvidia-driver" in texts(section, MISSING)


def test_figures_that_are_not_to_be_had_are_named_with_the_reason() -> None:
    gpu = check_nvml.GpuCheck(
        0, "H100", "GPU-1", {"fan_percent": "not offered", "power_milliwatts": "not offered"}
    )
    section = check_nvml.nvml_section(check_nvml.Nvml("/lib/x", "580.1", (gpu,), ""), DEBIAN)
    assert "GPU 0 n/a: fan_percent, power_milliwatts: not offered" in texts(section, NOTE)


def test_a_lost_gpu_is_one_line() -> None:
    gpu = check_nvml.GpuCheck(1, "H100", "GPU-1", {"fan_percent": "the GPU is lost"}, "the GPU is lost")
    section = check_nvml.nvml_section(
        check_nvml.Nvml("/lib/x", "580.1", (gpu,), "GPU 1: the GPU is lost"), DEBIAN
    )
    assert "GPU 1 H100 GPU-1: all figures n/a: the GPU is lost" in texts(section, NOTE)
    assert "fan_percent" not in texts(section, NOTE)
    assert "GPU 1: the GPU is lost" in texts(section, MISSING)


def a_report(*facts: Fact) -> check_report.CheckReport:
    return check_report.CheckReport(
        DEBIAN, (Section("kernel", facts, {}), check_libraries.libraries_section([CUDART]))
    )


def test_text_keeps_to_80_columns_and_says_each_fix_below_its_fact() -> None:
    text = check_report.to_text(a_report(missing("no eBPF " * 20, "type this " * 20)))
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"✗ missing no eBPF[^→]*→ type this", text)
    assert text.startswith("Live tracing does not work here:\n  ✗ missing no eBPF")


def test_text_without_a_unicode_locale_is_ascii() -> None:
    text = check_report.to_text(a_report(ok("größer"), missing("x", "y")), ascii_only=True)
    assert text.isascii()
    assert "+ ok" in text


def test_symbols_are_listed_only_when_asked() -> None:
    assert "cudaHostAlloc" not in check_report.to_text(a_report())
    assert "cudaHostAlloc" in check_report.to_text(a_report(), verbose=True)


def test_live_works_unless_something_blocks() -> None:
    assert a_report(ok("x"), missing("y", "z", blocks=False)).live
    assert not a_report(ok("x"), missing("y", "z")).live


def test_the_json_is_what_the_page_says() -> None:
    done = run("check", "--json", "--simgpu")
    found = json.loads(done.stdout)
    assert found["schema"] == "gputop.check/1"
    assert_valid(found)
    assert done.returncode == (0 if found["live"] else 1)
    assert all(fact["fix"] for fact in found["facts"] if fact["status"] == "missing")
    page = (ROOT / "docs/json.md").read_text().partition("## gputop.check/1")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`([a-z_]+)`", page))
    assert set(found) <= documented
    for library in found["libraries"]:
        assert set(library) <= documented
    for family in ("kernel", "rights", "bcc", "tracing", "nvml"):
        assert set(found[family]) <= documented, family
    simulated = [library for library in found["libraries"] if "/simgpu-" in library["path"]]
    assert {library["layer"] for library in simulated} == {"runtime", "driver", "nccl"}


@pytest.mark.skipif(os.geteuid() != 0, reason="root tries it as somebody else")
def test_without_root_check_ends_with_1_and_names_sudo() -> None:
    done = run("check", program=("setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", *_gputop()))
    assert done.returncode == 1, done.stderr
    assert "sudo" in done.stdout
    verdict, obstacle, mends, *_ = done.stdout.splitlines()
    assert verdict == "Live tracing does not work here:"
    assert obstacle == "  ✗ missing no eBPF without root (CAP_BPF and CAP_PERFMON missing)"
    assert mends.strip() == "→ sudo gputop"
    assert "cannot be tried without rights" in " ".join(done.stdout.split())


def _gputop() -> tuple[str, ...]:
    return (sys.executable, "-m", "gputop")


def test_words_that_make_no_sense_end_with_2() -> None:
    assert_one_sentence(run("check", "--pid", "x"), 2, "--pid")
    assert_one_sentence(run("check", "--", "ls"), 2, "check")


def test_a_process_that_does_not_exist_is_told() -> None:
    assert_one_sentence(run("check", "--pid", "99999999"), 1, "no process 99999999")


# -- the page -----------------------------------------------------------------------------------


def test_every_row_of_what_works_where_names_tests_that_exist() -> None:
    page = (ROOT / "docs/what-works-where.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| where")]
    assert len(rows) >= 12
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert named, f"no test makes this row: {row}"
        for path, name in named:
            source = ROOT / path
            assert source.exists(), path
            assert re.search(rf"^(?:async )?def {name}\(", source.read_text(), re.MULTILINE), (
                f"{path}::{name}"
            )
