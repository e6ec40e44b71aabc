"""Programs in jobs of a real Slurm: job, step, rank and user wherever gputop shows them, as Slurm tells them.

Skipped where Debian's Slurm is not unpacked (make setup). Its control groups of version 2 are not tried:
Slurm refuses a machine that has both versions mounted.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gputop.simgpu import ensure_built
from tests.conftest import needed, skip_or_fail
from tests.ebpf.recording import compile_program, told
from tests.gputop_command import GPUTOP
from tests.rootless_support import as_nobody, environment
from tests.scraping import families, free_port
from tests.serving import Daemon, marks_go_on, serving
from tests.slurm import Slurm, Told, cluster
from tests.waiting import HANGS_S, wait_until

pytestmark = [pytest.mark.ebpf, pytest.mark.long, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(300)]
_SYSTEMS = 65534  # nobody's number: Slurm starts no job of a user whom the machine does not know
KEYS = ("job_kind", "job_id", "job_step", "rank", "local_rank", "world_size")
# two tasks, one without its environment, the script itself, and a job that a task submits
SCRIPT = """#!/bin/sh
srun --overlap -n2 {steady} {stop} &
srun --overlap -n1 env -i SELF_LOG={log} SIMGPU_STATE={state} LD_LIBRARY_PATH={libraries} {steady} {stop} &
srun --overlap -n1 sbatch -n1 -o {home}/inner.out {home}/inner.sh
{steady} {stop}
wait
"""
INNER = """#!/bin/sh
exec {steady} {stop}
"""


@contextmanager
def _job(home: Path, slurm: Slurm) -> Iterator[str]:
    """A job of nobody's with two tasks, until the caller has seen enough; its number."""
    places = {
        "steady": compile_program("steady.c", home),
        "stop": home / "stop",
        "log": home / "self.jsonl",
        "home": home,
        "state": home / "state",
        "libraries": home / "libraries",
    }
    (home / "job.sh").write_text(SCRIPT.format(**places))
    (home / "inner.sh").write_text(INNER.format(**places))
    chosen = ("-n2", "-D", str(home), "-o", str(home / "job.out"))
    number = slurm.command(
        "sbatch", "--parsable", *chosen, str(home / "job.sh"), user=as_nobody(number=_SYSTEMS)
    ).strip()
    try:
        yield number
    finally:
        (home / "stop").touch()
        wait_until(lambda: not slurm.command("squeue", "-h"), "the end of the jobs", every=0.2)


def _shown(daemon: Daemon) -> dict[int, dict[str, Any]]:
    return {process["pid"]: process for process in daemon.frame()["processes"]}


def _expected(slurm: Slurm, one: Told) -> dict[str, Any]:
    """What gputop is to tell of a process by what Slurm tells of it."""
    expected: dict[str, Any] = {"job_kind": "slurm", "job_id": one.job, "job_step": one.step}
    if one.step.isdecimal():
        tasks = int(slurm.step(one.job, one.step)["Tasks"])
        expected |= {"rank": int(one.rank), "local_rank": int(one.local), "world_size": tasks}
    return expected


def _recorded(home: Path, env: dict[str, str], pids: list[int]) -> dict[int, dict[str, Any]]:
    """The same processes in a recording."""
    file = str(home / "run.gputop")
    watched = ("--simgpu", "--pid", ",".join(map(str, pids)), "--duration", "2", "--lines", "off")
    subprocess.run([*GPUTOP, "record", "-o", file, *watched], env=env, check=True, capture_output=True)
    return {process["pid"]: process for process in _frame(Path(file), env)["processes"]}


def _frame(file: Path, env: dict[str, str]) -> dict[str, Any]:
    """The last one of a recording."""
    shown = [*GPUTOP, "replay", "--once", "--json", "--at", "end", str(file)]
    frame: dict[str, Any] = json.loads(subprocess.run(shown, env=env, check=True, capture_output=True).stdout)
    return frame


@pytest.mark.parametrize("track", ["linuxproc", "cgroup"])
def test_processes_of_jobs_are_named_as_slurm_names_them(home: Path, track: str) -> None:
    needed("prometheus_client")
    if track == "cgroup" and not Path("/sys/fs/cgroup/freezer").exists():
        skip_or_fail("this machine has no control groups of version 1")
    env, port, log = environment(home), free_port(), home / "self.jsonl"
    log.touch()
    log.chmod(0o666)
    os.chown(home, _SYSTEMS, _SYSTEMS)
    libraries = home / "libraries"
    shutil.copytree(ensure_built(), libraries, symlinks=True)  # nobody reads root's cache
    own = {"LD_LIBRARY_PATH": str(libraries), "SIMGPU_STATE": env["SIMGPU_STATE"], "SELF_LOG": str(log)}
    with (
        cluster(home, own, track) as slurm,
        serving(home, "--keep-dir", "", "--metrics", str(port)) as daemon,
        _job(home, slurm) as number,
    ):
        wait_until(lambda: len(told(log)) == 5, "five programs", every=0.2)
        pids = [line["pid"] for line in told(log)]
        truth = {pid: one for pid, one in slurm.processes().items() if pid in pids}
        assert sorted(truth) == sorted(pids)
        inner = next(one.job for one in truth.values() if one.job != number)
        assert Counter((one.job, one.step.isdecimal()) for one in truth.values()) == {
            (number, True): 3,
            (number, False): 1,
            (inner, False): 1,
        }
        marks_go_on(daemon, 3)
        shown, recorded = _shown(daemon), _recorded(home, env, pids)
        infos = {
            one.labels["pid"]: one.labels
            for family in families(port)
            for one in family.samples
            if one.name == "gputop_process_info"
        }
        for pid, one in truth.items():
            expected = _expected(slurm, one)
            if pid == _without_environment(truth, number):
                for key in ("rank", "local_rank", "world_size"):
                    del expected[key]  # Slurm's control groups do not tell them
                if track != "cgroup":
                    expected = {}
            assert shown[pid].get("belongs", {}) == recorded[pid].get("belongs", {})
            if one.job == inner and track != "cgroup":
                # only its group tells that the step in its environment is that of the task that submitted it
                assert shown[pid]["belongs"]["job_id"] == inner
                continue
            assert shown[pid].get("belongs", {}) == expected
            assert {key: infos[str(pid)][key] for key in KEYS if key in infos[str(pid)]} == {
                key: str(value) for key, value in expected.items()
            }
            user = slurm.job(one.job)["UserId"].partition("(")[0]
            assert {shown[pid]["user"], recorded[pid]["user"], infos[str(pid)]["user"]} == {user}
            assert user == "nobody"


def _without_environment(truth: dict[int, Told], number: str) -> int:
    """The process that was started alone in its step."""
    steps = Counter(one.step for one in truth.values() if one.job == number and one.step.isdecimal())
    (alone,) = [step for step, count in steps.items() if count == 1]
    return next(pid for pid, one in truth.items() if (one.job, one.step) == (number, alone))


def _grown(log: Path, lines: int) -> bool:
    return len(told(log)) == lines


def test_a_recorder_within_each_task_sees_its_rank_and_one_around_srun_says_that_it_sees_none(
    home: Path,
) -> None:
    env, log = environment(home), home / "self.jsonl"
    own = {"LD_LIBRARY_PATH": str(ensure_built()), "SIMGPU_STATE": env["SIMGPU_STATE"], "SELF_LOG": str(log)}
    steady, gputop = str(compile_program("steady.c", home)), shlex.join(GPUTOP)
    inside = f'exec {gputop} record -o {home}/rank$SLURM_PROCID.gputop --simgpu --lines off -- "$@"'
    with cluster(home, own | {"HOME": str(home)}, "linuxproc") as slurm:
        srun = str(slurm.root / "usr" / "bin" / "srun")
        around = [*GPUTOP, *f"record -o {home}/around.gputop --simgpu --lines off -- {srun} -n2".split()]
        within = [srun, "-n2", "sh", "-c", inside, "sh"]
        for name, words in (("within", within), ("around", around)):
            before, stop = len(told(log)), home / f"{name}.stop"
            process = subprocess.Popen(
                [*words, steady, str(stop)], env=slurm.env, stderr=subprocess.PIPE, text=True
            )
            wait_until(partial(_grown, log, before + 2), "both tasks", every=0.2)
            time.sleep(2)  # so long they make calls
            stop.touch()
            _, errors = process.communicate(timeout=HANGS_S)
            assert process.returncode == 0, errors
            assert ("slurmstepd" in errors) == (name == "around")
    for rank in (0, 1):
        (task,) = _frame(home / f"rank{rank}.gputop", env)["processes"]
        assert [task["belongs"][key] for key in ("job_step", "rank", "world_size")] == ["0", rank, 2]
        assert task["calls_per_second"] > 0
    assert all(one["calls_per_second"] == 0 for one in _frame(home / "around.gputop", env)["processes"])
