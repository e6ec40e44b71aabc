"""The daemon with real probes: users, many clients, clients that do not read, its end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gputop.serve.clients import wire
from probes.schema import Kind
from probes.source import PROCESS, Sample
from replay.reader import SessionReader
from tests.ebpf.bpf_objects import existing, held_by
from tests.gputop_command import GPUTOP
from tests.rootless_support import NOBODY, as_nobody, environment
from tests.serving import Daemon, calling, marks_go_on, serving
from tests.waiting import HANGS_S, wait_until

pytestmark = pytest.mark.ebpf
SECRET = "the-secret-of-root"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    home = tmp_path_factory.mktemp("serve")
    for folder in (home, home.parent, home.parent.parent):
        folder.chmod(0o755)
    (home / "state").touch()
    (home / "state").chmod(0o666)
    with serving(home) as running:
        yield running


def _row(frame: dict, pid: int) -> dict:  # type: ignore[type-arg]
    (found,) = [row for row in frame["processes"] if row["pid"] == pid]
    return dict(found)


def _recorded_pids(path: Path) -> tuple[set[int], str]:
    """(processes of which there are calls, everything that is reported as text)."""
    reader = SessionReader(path)
    items = list(reader.items())
    reader.close()
    pids = {
        int(pid)
        for item in items
        if not isinstance(item, Sample)
        for pid in item["pid"][item["kind"] == int(Kind.CALL)]
    }
    return pids, str([reader.header, *(item.data for item in items if isinstance(item, Sample))])


def _seen(daemon: Daemon) -> set[int]:
    """Processes of nobody's that root sees in a recording of the same time."""
    path = daemon.home / "roots.gputop"
    assert daemon.client("dump", "-o", str(path)).returncode == 0
    reader = SessionReader(path)
    rows = [item.data for item in reader.items() if isinstance(item, Sample) and item.kind == PROCESS]
    reader.close()
    return {row["pid"] for row in rows if row.get("uid") == NOBODY}


def test_each_user_sees_their_own_processes_whole_and_of_others_number_and_sums(daemon: Daemon) -> None:
    with (
        calling(daemon.home, 100_000, 0.005, SECRET) as roots,
        calling(daemon.home, 100_000, 0.005, nobody=True) as nobodys,
    ):
        frame: dict[str, Any] = {}

        def like_the_other_which_does_the_same() -> bool:  # unless one of them is kept from its CPU
            frame.update(daemon.frame(within=as_nobody()))
            rates = [_row(frame, pid)["calls_per_second"] for pid in (nobodys, roots)]
            return rates[0] > 20 and rates[1] == pytest.approx(rates[0], rel=0.5)

        wait_until(like_the_other_which_does_the_same, "calls a second of both", every=0.5)
        mine, others = _row(frame, nobodys), _row(frame, roots)
        assert mine["user"] == str(NOBODY)
        assert mine["command"]
        assert {call["api"] for call in mine["calls"]} >= {"cudaMemset"}
        assert others["calls"] == []
        assert others["threads"] == []
        assert others["command"] == others["user"] == ""
        assert SECRET not in str(frame)
        whole = daemon.frame()
        assert SECRET in str(whole)
        assert _row(whole, roots)["calls"]
        assert _row(whole, nobodys)["calls"]


@pytest.mark.long
def test_the_past_that_a_user_keeps_holds_nothing_of_others(daemon: Daemon) -> None:
    with (
        calling(daemon.home, 100_000, 0.005, SECRET) as roots,
        calling(daemon.home, 100_000, 0.005, nobody=True) as nobodys,
    ):
        marks_go_on(daemon, 4)
        kept = daemon.home / "nobodys"
        kept.mkdir(exist_ok=True)
        kept.chmod(0o777)
        done = daemon.client("dump", "-o", str(kept / "mine.gputop"), within=as_nobody())
        assert done.returncode == 0, done.stderr
        assert (kept / "mine.gputop").stat().st_uid == NOBODY
        pids, text = _recorded_pids(kept / "mine.gputop")
        assert nobodys in pids
        assert pids <= {*_seen(daemon), nobodys}
        assert SECRET not in text
        done = daemon.client("dump", "-o", str(daemon.home / "all.gputop"))
        assert done.returncode == 0, done.stderr
        pids, text = _recorded_pids(daemon.home / "all.gputop")
        assert pids >= {nobodys, roots}
        assert SECRET in text


@pytest.mark.long
def test_a_users_part_has_no_losses_where_there_were_none(daemon: Daemon) -> None:
    """Records of others are left out, which must not look as if they had been lost."""
    with calling(daemon.home, 100_000, 0.002), calling(daemon.home, 100_000, 0.002, nobody=True) as mine:
        marks_go_on(daemon, 8)
        kept = daemon.home / "losses"
        kept.mkdir()
        kept.chmod(0o777)
        assert daemon.client("dump", "-o", str(kept / "s.gputop"), within=as_nobody()).returncode == 0
        done = subprocess.run(
            [*GPUTOP, "explain", "--json", str(kept / "s.gputop")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert json.loads(done.stdout)["lost"]["events"] == 0
        assert mine in _recorded_pids(kept / "s.gputop")[0]


@pytest.mark.long
def test_twenty_clients_and_one_that_never_reads_delay_nobody(daemon: Daemon) -> None:
    with calling(daemon.home, 10_000_000, 0.0):
        stuck = socket.socket(socket.AF_UNIX)
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(daemon.socket)
        stuck.sendall(wire.packed({"gputop": wire.VERSION, "ask": "follow"}))
        clients = [_Follower(daemon.socket) for _ in range(20)]
        wait_until(lambda: daemon.status()["clients"] >= 21, "the clients")
        marks_go_on(daemon, 6)
        wait_until(lambda: all(client.marks() >= 4 for client in clients), "marks at each client")
        for client in clients:
            client.close()
        wait_until(lambda: daemon.status()["clients"] <= 3, "the clients to be gone")
        stuck.close()
    marks_go_on(daemon)


class _Follower:
    """A client that reads, without a process of its own."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._socket.sendall(wire.packed({"gputop": wire.VERSION, "ask": "follow"}))
        self._socket.setblocking(False)
        self._incoming = wire.Incoming(wire.MOST_MESSAGE)
        self._marks = 0
        self.last_words = ""

    def marks(self) -> int:
        """How many marks have come."""
        try:
            while data := self._socket.recv(1 << 16):
                for message in self._incoming.feed(data):
                    if message["k"] == "end":
                        self.last_words = message["text"]
                    items = wire.items_of(message.get("chunks", b""))
                    self._marks += sum(isinstance(item, Sample) and item.kind == "mark" for item in items)
        except BlockingIOError:
            pass
        return self._marks

    def close(self) -> None:
        self._socket.close()


def test_what_is_no_question_is_refused_and_the_daemon_goes_on(daemon: Daemon) -> None:
    for said in (
        b"\xff" * 64,
        b"\0\0\0\1\xc1",
        wire.packed({"gputop": 99, "ask": "follow"}),
        wire.packed({"a": 1}),
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(daemon.socket)
            client.settimeout(HANGS_S)
            client.sendall(said)
            (message,) = wire.Incoming(1 << 20).feed(client.recv(1 << 16))
            assert message["k"] == "error"
            assert client.recv(10) == b""
    marks_go_on(daemon)


def test_nobody_else_than_root_can_switch_it_off(daemon: Daemon) -> None:
    done = subprocess.run(
        [*as_nobody(), *GPUTOP, "serve", "--stop", "--socket", daemon.socket],
        env=environment(daemon.home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "only root" in done.stderr
    marks_go_on(daemon)


@pytest.mark.parametrize("way", ["off", "SIGUSR1", "SIGTERM"])
@pytest.mark.mainly("SIGTERM")
def test_however_it_is_ended_in_order_no_probe_is_left(tmp_path: Path, way: str) -> None:
    with serving(tmp_path) as daemon:
        held = held_by(daemon.process.pid)
        assert held.links
        follower = _Follower(daemon.socket)
        wait_until(follower.marks, "its first mark")
        asked: subprocess.Popen[bytes] | None = None
        if way == "off":
            asked = subprocess.Popen([*GPUTOP, "serve", "--stop", "--socket", daemon.socket])
        else:
            daemon.process.send_signal(signal.Signals[way])
        # who does not read on may have no room for the end, also while the question is on its way
        wait_until(lambda: (follower.marks(), daemon.process.poll() is not None)[1], "its end")
        assert asked is None or asked.wait(HANGS_S) == 0
        assert daemon.process.returncode == 0
        assert not held & existing()
        assert not Path(daemon.socket).exists()
        follower.marks()
        assert follower.last_words


def is_connected(pid: int) -> bool:
    """Whether one of a process's sockets of this machine is."""
    rows = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]]
    connected = {f"socket:[{row[6]}]" for row in rows if row[5] == "03"}
    held = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            held.add(os.readlink(one))
    return not held.isdisjoint(connected)


def test_a_daemon_that_is_killed_leaves_its_clients_a_sentence_and_no_probe(tmp_path: Path) -> None:
    with serving(tmp_path) as daemon:
        held = held_by(daemon.process.pid)
        client = subprocess.Popen(
            [*GPUTOP, "attach", "--once", "--duration", "60", "--socket", daemon.socket],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        wait_until(lambda: is_connected(client.pid), "the client")
        daemon.process.kill()
        _, said = client.communicate(timeout=HANGS_S)
        assert client.returncode == 1
        # the second, where the daemon is gone before the client has said what it wants
        assert "the daemon " in said or "no gputop daemon answers" in said
        wait_until(lambda: not held & existing(), "the kernel to detach", every=0.3)
    with serving(tmp_path) as again:  # the socket that was left is no obstacle
        assert again.status()["marks"] >= 0


def test_where_no_daemon_runs_a_client_says_how_to_start_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [*GPUTOP, "attach", "--once", "--socket", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "sudo gputop serve" in done.stderr


@pytest.mark.long
def test_processes_that_come_and_go_leave_nothing_behind(daemon: Daemon) -> None:
    def generation() -> None:
        for _ in range(6):
            with calling(daemon.home, 20, 0.0):
                pass

    folder = Path(f"/proc/{daemon.process.pid}/fd")
    generation()
    marks_go_on(daemon)
    before = len(list(folder.iterdir()))
    for _ in range(4):
        generation()
    marks_go_on(daemon)
    assert len(list(folder.iterdir())) <= before + 2


@pytest.mark.long
def test_ready_and_watchdog_are_told_to_systemd(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        process = subprocess.Popen(
            [*GPUTOP, "serve", "--simgpu", "--lines", "off", "--socket", str(tmp_path / "s")],
            env=environment(tmp_path) | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            stderr=subprocess.DEVNULL,
        )
        try:
            assert b"READY=1" in systemd.recv(4096)
            said = [systemd.recv(4096) for _ in range(3)]
            assert said == [b"WATCHDOG=1"] * 3
        finally:
            process.terminate()
            process.wait(HANGS_S)
        time.sleep(0.1)
        systemd.setblocking(False)
        rest = []
        while True:
            try:
                rest.append(systemd.recv(4096))
            except BlockingIOError:
                break
        assert rest[-1] == b"STOPPING=1"


def test_the_rights_that_the_unit_of_systemd_leaves_it_are_enough(tmp_path: Path) -> None:
    unit = (Path(__file__).resolve().parents[2] / "deploy" / "gputop.service").read_text()
    (rights,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    kept = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in rights.split())
    within = ("setpriv", "--bounding-set", f"-all,{kept}", "--inh-caps", "-all", "--no-new-privs")
    with serving(tmp_path, "--keep-dir", str(tmp_path / "kept"), within=within) as daemon:
        with calling(tmp_path, 1_000_000, 0.005, nobody=True) as pid:
            assert _row(daemon.frame(), pid)["calls"]
            daemon.process.send_signal(signal.SIGUSR2)
            wait_until(lambda: list((tmp_path / "kept").iterdir()), "a kept session")
        assert daemon.client("serve", "--stop").returncode == 0
        assert daemon.process.wait(HANGS_S) == 0


def test_what_a_private_daemon_gives_away_holds_no_command_line_and_no_user(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()

    def kept() -> list[Path]:
        return list((tmp_path / "kept").glob("*.msgpack"))

    with (
        serving(tmp_path, "--private", "--keep-dir", str(tmp_path / "kept"), "--after", "1") as daemon,
        calling(tmp_path, 1_000_000, 0.005, SECRET) as pid,
    ):
        marks_go_on(daemon, 3)
        assert daemon.client("dump", "-o", str(tmp_path / "snap.gputop")).returncode == 0
        daemon.process.send_signal(signal.SIGUSR2)
        # others of this machine may give reasons to keep something, too
        wait_until(lambda: any(pid in _recorded_pids(one)[0] for one in kept()), "a kept session")
    assert pid in _recorded_pids(tmp_path / "snap.gputop")[0]
    for path in (tmp_path / "snap.gputop", *kept()):
        assert SECRET not in _recorded_pids(path)[1]
        reader = SessionReader(path)
        assert reader.header["private"]
        assert "host" not in reader.header["machine"]
        reader.close()


def test_an_alert_reaches_a_command_through_the_daemons_confinement(tmp_path: Path) -> None:
    """It may make few system calls, and its command becomes nobody: neither keeps the alert away."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        place.chmod(0o777)
        script, out = place / "page", place / "told"
        script.write_text(f"#!/bin/sh\nid -u > {out}.part; cat >> {out}.part; mv {out}.part {out}\n")
        script.chmod(0o755)
        flags = ("--alert", "util < 101", "--alert-command", str(script), "--keep-dir", "")
        with serving(tmp_path, *flags):
            wait_until(out.exists, "the command")
        uid, told = out.read_text().splitlines()
        assert uid == "65534"
        assert json.loads(told)["subject"] == "GPU 0"
        assert "alert: util < 101: GPU 0 is at" in (tmp_path / "daemon.err").read_text()
    finally:
        shutil.rmtree(place)
