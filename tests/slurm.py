"""A Slurm of one node for a test: munge, controller and node daemon of Debian's, in a folder of their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import skip_or_fail
from tests.scraping import free_port
from tests.stories.installed import cache
from tests.waiting import wait_until

PATIENT_S = 60
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_CONFIG = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={control}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={home}/slurm-state
SlurmdSpoolDir={home}/slurm-spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
ProctrackType=proctrack/{track}
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP OverSubscribe=FORCE
"""


@dataclass(frozen=True)
class Told:
    """What Slurm itself says of a process, by ``scontrol listpids``."""

    job: str
    step: str
    local: str
    rank: str


@dataclass(frozen=True)
class Slurm:
    """One that runs.

    Attributes:
        root: Its unpacked packages.
        env: In which its commands find it.
    """

    root: Path
    env: dict[str, str]

    def command(self, name: str, *words: str, user: Sequence[str] = ()) -> str:
        """What one of its commands prints."""
        done = subprocess.run(
            [*user, str(self.root / "usr" / "bin" / name), *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENT_S,
            check=False,
        )
        assert done.returncode == 0, (name, words, done.stderr)
        return done.stdout

    def processes(self) -> dict[int, Told]:
        """Number -> whose it is."""
        rows = [line.split() for line in self.command("scontrol", "listpids").splitlines()[1:]]
        return {int(pid): Told(job, step, local, rank) for pid, job, step, local, rank in rows}

    def job(self, number: str) -> dict[str, str]:
        """``scontrol show job``."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.command("scontrol", "show", "job", number)))

    def step(self, job: str, step: str) -> dict[str, str]:
        """``scontrol show step``."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.command("scontrol", "show", "step", f"{job}.{step}")))


def _root() -> Path:
    root = cache() / "slurm"
    if not (root / "complete").exists():
        skip_or_fail("no Slurm: make setup")
    if os.geteuid() != 0:
        skip_or_fail("Slurm's daemons need root")
    if not (root / _LIBRARIES / "slurm-wlm").exists():
        skip_or_fail("Slurm's plugins are not where its packages for amd64 have them")
    return root


@contextmanager
def _running(words: Sequence[str], env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as errors:
        process = subprocess.Popen(
            words,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENT_S)


@contextmanager
def cluster(home: Path, env: Mapping[str, str], track: str) -> Iterator[Slurm]:
    """A node that takes jobs; all of it is gone afterwards.

    Args:
        home: Where everything of it lies; others than root must reach it.
        env: Of jobs, beside Slurm's variables.
        track: ``linuxproc``, or ``cgroup``: version 1, each step in a group of ``freezer``.
    """
    root, host = home / "slurm", socket.gethostname().split(".")[0]
    shutil.copytree(_root(), root, symlinks=True)  # the user's cache is root's
    plugins = root / _LIBRARIES / "slurm-wlm"
    libraries = [env.get("LD_LIBRARY_PATH", ""), str(root / _LIBRARIES), str(plugins)]
    own = dict(env) | {
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        "SLURM_CONF": str(home / "slurm.conf"),
        "PATH": f"{root / 'usr' / 'bin'}:{os.environ['PATH']}",
    }
    for name in ("slurm-state", "slurm-spool"):
        (home / name).mkdir()
    key = home / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    places = {"home": home, "plugins": plugins, "host": host, "track": track, "cpus": os.cpu_count()}
    (home / "slurm.conf").write_text(_CONFIG.format(**places, control=free_port(), node=free_port()))
    (home / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n")
    programs, config = root / "usr" / "sbin", str(home / "slurm.conf")
    files = [f"--{name}-file={home / f'munge.{name}'}" for name in ("key", "pid", "log", "seed")]
    munge = [str(programs / "munged"), "--foreground", "--force", f"--socket={home / 'munge.socket'}", *files]
    controller = [str(programs / "slurmctld-wlm"), "-D", "-f", config]
    stepd = str(programs / "slurmstepd-wlm")
    node = [str(programs / "slurmd-wlm"), "-D", "-f", config, "-d", stepd, "-N", host]
    slurm = Slurm(root, own)
    with ExitStack() as stack:
        stack.enter_context(_running(munge, own, home / "munge.err"))
        wait_until((home / "munge.socket").exists, "munge")
        stack.enter_context(_running(controller, own, home / "slurmctld.err"))
        stack.callback(_without_groups, host)
        started = stack.enter_context(_running(node, own, home / "slurmd.err"))
        wait_until(lambda: started.poll() is not None or _idle(slurm), "a node that is idle", every=0.2)
        assert started.poll() is None, (home / "slurmd.err").read_text()
        try:
            yield slurm
        finally:
            with suppress(AssertionError):  # no job is left
                slurm.command("scancel", "--full", "--me")
                wait_until(lambda: not slurm.command("squeue", "-h"), "the end of all jobs", every=0.2)


def _idle(slurm: Slurm) -> bool:
    try:
        return "idle" in slurm.command("sinfo", "-h", "-o", "%t")
    except AssertionError:
        return False  # the controller does not answer yet


def _without_groups(host: str) -> None:
    """Slurm leaves the group of the node behind."""
    for place in Path("/sys/fs/cgroup").glob(f"*/slurm_{host}"):
        for group in sorted(place.rglob("*/"), reverse=True):
            if group.is_dir():
                group.rmdir()
        place.rmdir()
