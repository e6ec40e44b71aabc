"""What this process may observe, as other machines would tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.ebpf.rights import CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, Rights, install_bcc, missing, read_rights


def rights(root: Path, *capabilities: int, users: str = "0 0 4294967295", **files: str) -> Rights:
    """Rights as read from made-up /proc and /sys."""
    mask = sum(1 << capability for capability in capabilities)
    made = {
        "proc/self/status": f"Name:\tgputop\nNoNewPrivs:\t0\nSeccomp:\t2\nCapEff:\t{mask:016x}\n",
        "proc/self/uid_map": f"         {users}\n",
        "proc/1/stat": "1 (init)",
        "proc/sys/kernel/perf_event_paranoid": "4",
        "sys/kernel/btf/vmlinux": "BTF",
        **{name.replace("__", "/"): text for name, text in files.items()},
    }
    for name, text in made.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_rights(root / "proc", root / "sys")


@pytest.mark.parametrize(
    ("capabilities", "may"),
    [((CAP_BPF, CAP_PERFMON), True), ((CAP_SYS_ADMIN,), True), ((CAP_BPF,), False), ((CAP_PERFMON,), False)],
)
def test_two_capabilities_or_the_old_one_are_enough(
    tmp_path: Path, capabilities: tuple[int, ...], may: bool
) -> None:
    assert rights(tmp_path, *capabilities).may_trace is may


def test_raw_facts_are_kept(tmp_path: Path) -> None:
    found = rights(tmp_path, CAP_BPF)
    assert (found.perf_event_paranoid, found.unprivileged_bpf_disabled, found.seccomp) == (4, None, 2)
    assert (found.effective, found.cap_bpf, found.cap_perfmon) == (1 << CAP_BPF, True, False)
    assert (found.btf, found.hidepid, found.tracefs, found.lockdown) == (True, False, False, "")


@pytest.mark.parametrize(
    ("text", "word", "stops"),
    [
        ("[none] integrity confidentiality", "none", False),
        ("none [integrity] confidentiality", "integrity", False),
        ("none integrity [confidentiality]", "confidentiality", True),
    ],
)
def test_only_confidential_lockdown_stops_tracing(tmp_path: Path, text: str, word: str, stops: bool) -> None:
    found = rights(tmp_path, CAP_SYS_ADMIN, sys__kernel__security__lockdown=text)
    assert found.lockdown == word
    assert any("lockdown=integrity" in sentence for sentence in missing(found)) is stops


def test_what_is_there_and_empty_counts_as_masked(tmp_path: Path) -> None:
    found = rights(tmp_path, CAP_SYS_ADMIN, sys__kernel__btf__vmlinux="", proc__1__stat="")
    assert (found.btf, found.hidepid) == (False, True)
    assert any("CONFIG_DEBUG_INFO_BTF" in sentence for sentence in missing(found))


def test_root_of_another_user_namespace_is_told_where_to_go(tmp_path: Path) -> None:
    found = rights(tmp_path, CAP_SYS_ADMIN, users="0 1000 1")
    assert found.initial_user_namespace is False
    assert any("on the host" in sentence for sentence in missing(found))


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=ubuntu\nID_LIKE=debian\n", "apt-get install python3-bpfcc"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install python3-bcc"),
        ("ID=arch\n", "pacman -S python-bcc"),
        ("ID=unheard-of\n", "package manager"),
        ("", "package manager"),
    ],
)
def test_bcc_is_installed_as_the_distribution_does_it(tmp_path: Path, release: str, command: str) -> None:
    (tmp_path / "os-release").write_text(release)
    assert command in install_bcc(tmp_path / "os-release")
