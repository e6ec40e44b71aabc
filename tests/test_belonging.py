"""Whose a process is: control groups, variables and log folders as clusters make them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.files.redaction import Redactor
from probes.proc import belonging, procfs
from probes.proc.belonging import Pods
from probes.source import PROCESS, Sample
from replay.private import Disguise
from tests.waiting import wait_until

UID = "0e2f1c52-8a4d-4b7c-9a53-1f0c6f0d9c11"
CONTAINER = "3f" * 32
SYSTEMD = (
    "0::/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope\n"
)
CGROUPFS = f"0::/kubepods/burstable/pod{UID}/{CONTAINER}\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "containers").mkdir()
    (tmp_path / "pods" / f"team-a_trainer-0_{UID}" / "worker").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("cgroups", [SYSTEMD, CGROUPFS])
def test_a_pod_is_named_by_the_kubelets_log_folders(logs: Path, cgroups: str) -> None:
    assert _of(cgroups, pods=Pods(str(logs))) == {"pod": "trainer-0", "namespace": "team-a"}
    (logs / "containers" / f"trainer-0_team-a_worker-{CONTAINER}.log").touch()
    found = _of(cgroups, pods=Pods(str(logs)))
    assert found == {"pod": "trainer-0", "namespace": "team-a", "pod_container": "worker"}


def test_a_pod_that_no_folder_names_stays_unknown_and_one_that_comes_later_is_found(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = Pods(str(logs))
    other = SYSTEMD.replace("3f" * 32, "4f" * 32).replace("0e2f1c52", "ffffffff")
    assert _of(other, pods=pods) == {}
    (logs / "containers" / f"late_team-b_main-{'4f' * 32}.log").touch()
    assert _of(other, pods=pods) == {}  # folders are not listed for each process
    monkeypatch.setattr(belonging, "KNOWN_S", 0.0)
    assert _of(other, pods=pods)["pod"] == "late"


def test_names_that_no_kubelet_gives_are_not_believed(logs: Path) -> None:
    (logs / "containers" / f"a\nb_ns_c-{CONTAINER}.log").touch()
    (logs / "containers" / f"UPPER_ns_c-{CONTAINER}.log").touch()
    assert _of(SYSTEMD, pods=Pods(str(logs))) == {"pod": "trainer-0", "namespace": "team-a"}


@pytest.mark.parametrize(
    ("path", "job", "step"),
    [
        ("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "4711", "0"),
        ("/system.slice/node7_slurmstepd.scope/job_12/step_batch/user", "12", "batch"),
        ("/slurm_node7/uid_1000/job_99/step_3/task_1", "99", "3"),
        ("/slurm/uid_1000/job_5", "5", None),
    ],
)
def test_a_job_of_slurm_is_known_by_any_of_its_paths(path: str, job: str, step: str | None) -> None:
    expected = {"job_kind": "slurm", "job_id": job} | ({"job_step": step} if step is not None else {})
    assert _of(f"0::{path}\n") == expected


def test_variables_come_before_paths_since_newer_slurm_names_groups_by_other_numbers() -> None:
    found = _of("0::/slurmstepd.scope/job_900719925474/step_2", SLURM_JOB_ID="77", SLURM_STEP_ID="2")
    assert found == {"job_kind": "slurm", "job_id": "77", "job_step": "2"}


# as slurmstepd 22.05 sets them: tests/ebpf/test_ebpf_slurm.py
_TASK = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("path", "variables", "step"),
    [
        ("/", _TASK, "batch"),
        ("/slurm_n/uid_0/job_7/step_batch", _TASK, "batch"),
        ("/slurm_n/uid_0/job_7/step_batch", _TASK | {"SLURM_STEP_ID": "0"}, "batch"),  # a task submitted it
        ("/", _TASK | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, "interactive"),
        ("/", {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}, None),  # a command of salloc's
    ],
)
def test_scripts_and_shells_of_a_job_are_no_ranks(
    path: str, variables: dict[str, str], step: str | None
) -> None:
    expected = {"job_kind": "slurm", "job_id": "7"} | ({"job_step": step} if step is not None else {})
    assert _of(f"6:freezer:{path}\n0::/\n", **variables) == expected
    assert _of(f"6:freezer:{path}\n", **variables, RANK="1", WORLD_SIZE="2") == expected | {
        "rank": 1,
        "world_size": 2,
    }


@pytest.mark.parametrize(
    ("variables", "rank", "size"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, 3, 8),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"PMI_RANK": "0", "PMI_SIZE": "4"}, 0, 4),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, 5, 6),
        ({"JOB_COMPLETION_INDEX": "2"}, 2, None),
    ],
)
def test_ranks_of_every_launcher_are_known(variables: dict[str, str], rank: int, size: int | None) -> None:
    found = _of("0::/", **variables)
    assert (found["rank"], found.get("world_size")) == (rank, size)


def test_values_that_are_no_numbers_or_too_long_are_not_taken() -> None:
    assert _of("0::/", RANK="-1", WORLD_SIZE="8; rm", LOCAL_RANK="9" * 30, RAY_JOB_ID="a b" * 90) == {}


def _of(cgroups: str, pods: Pods | None = None, **variables: str) -> dict[str, Any]:
    return belonging.belonging(cgroups.encode(), variables, pods or Pods("/nonexistent"))


def test_of_an_environment_only_the_listed_variables_are_read() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"],
        env=os.environ | {"RANK": "6", "WORLD_SIZE": "7", "SLURM_JOB_ID": "8", "MY_SECRET": "hush"},
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (procfs.process_facts(process.pid) or {}).get("rank") == 6, "its environment")
        facts = procfs.process_facts(process.pid)
        assert facts is not None
        assert (facts["world_size"], facts["job_kind"], facts["job_id"]) == (7, "slurm", "8")
        assert "hush" not in str(facts)
    finally:
        process.kill()
        process.wait()


def test_private_and_redacted_recordings_name_no_pod_and_no_job() -> None:
    told = {
        "pod": "trainer-0",
        "namespace": "team-a",
        "pod_container": "worker",
        "job_id": "4711x",
        "job_step": "9x",
    }
    facts = {"pid": 5, "name": "python", "watched": True, "rank": 3, "job_kind": "slurm"} | told
    sample = Sample(PROCESS, 1, facts)
    for cleaned in (Disguise().sample(sample), Redactor().item(sample)):
        assert isinstance(cleaned, Sample)
        assert not any(value in str(cleaned.data) for value in told.values())
        assert (cleaned.data["rank"], cleaned.data["job_kind"]) == (3, "slurm")
