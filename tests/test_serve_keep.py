"""When the daemon keeps a session, and how many: triggers on made-up steps and ends, and limits."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputop.analysis.answer.picture import OneStep
from gputop.analysis.answer.report import Level
from gputop.analysis.live import LiveExplainer
from gputop.analysis.window import Verdict
from gputop.serve.daemon import Daemon
from gputop.serve.flight_recorder import Keeper, KeepLimits
from gputop.serve.triggers import ENDED, FINDING, REQUESTED, SLOW_STEP, Trigger, Triggers
from probes.samples import sample_data
from probes.source import MARK, MARKER, PROCESS, Sample
from replay.coding.file_format import SessionError
from replay.past.history import History
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import fake_reports as reports
from tests import items as made
from tests.items import HEADER, MS, SECOND, START

USUAL = 20 * MS


def _verdict(lengths: list[int], first_ns: int, **more: Any) -> Verdict:
    """A verdict over steps of these lengths."""
    ends = first_ns + np.cumsum(lengths)
    spans = np.stack([ends - lengths, ends], axis=1)
    report = replace(reports.report(), findings=more.get("findings", ()))
    steps = (OneStep(77, 77, 0, np.zeros(1, np.int64), len(spans), USUAL, (), (), spans),)
    return Verdict(report, int(ends[-1]), START, reports.lanes(), steps=steps)


def _told(*verdicts: Verdict) -> list[Trigger]:
    found: list[Trigger] = []
    triggers = Triggers(found.append, killed_for_memory=lambda: 0)
    for verdict in verdicts:
        triggers.consume_verdict(verdict)
    return [trigger for trigger in found if trigger.kind == SLOW_STEP]


def test_a_step_that_takes_twice_its_usual_time_is_reported_once_however_often_it_is_seen() -> None:
    lengths = [USUAL] * 40 + [USUAL * 3] + [USUAL] * 5
    verdict = _verdict(lengths, START)
    later = _verdict([*lengths[20:], *[USUAL] * 20], START + 20 * USUAL)
    (trigger,) = _told(verdict, later)
    assert trigger.time_ns == START + 43 * USUAL
    assert "60.0ms, usually 20.0ms" in trigger.text


@pytest.mark.parametrize(
    "lengths",
    [
        [USUAL] * 200,
        [USUAL, USUAL * 19 // 10] * 100,
        [*[USUAL] * 9, USUAL * 5] * 20,  # every tenth saves a model
        [USUAL * 10, *[USUAL] * 60],  # the first one loads everything
        [USUAL] * 8 + [USUAL * 4] + [USUAL] * 8,  # too little is known yet
    ],
)  # fmt: skip
def test_what_a_program_does_as_usual_is_not_reported(lengths: list[int]) -> None:
    assert _told(_verdict(lengths, START)) == []


def test_a_finding_is_reported_when_it_appears_and_not_while_it_stays() -> None:
    found: list[Trigger] = []
    triggers = Triggers(found.append, killed_for_memory=lambda: 0)
    finding = reports.finding()
    large = replace(
        finding, level=Level.PROVED, kind="idle", loss=replace(finding.loss, lower=10**12, upper=10**12)
    )
    small = replace(large, loss=replace(finding.loss, lower=1, upper=2), cause="C99")
    hint = replace(large, level=Level.HINT, cause="C98")
    for second in range(0, 100, 10):
        triggers.consume_verdict(_verdict([USUAL], START + second * SECOND, findings=(large, small, hint)))
    assert [(trigger.kind, trigger.pid) for trigger in found] == [(FINDING, finding.pid)]


def _ended(code: int, *errors: tuple[int, str, int], killed: list[int] | None = None) -> list[str]:
    """What is reported of an end with this code, after calls that returned an error ns before."""
    found: list[Trigger] = []
    counts = iter(killed or [0, 0])
    triggers = Triggers(found.append, killed_for_memory=lambda: next(counts))
    end = START + 100 * SECOND
    facts = {"pid": 10, "exited_ns": end, "exit_code": code, "called": True}
    triggers.consume(Sample(PROCESS, end, facts))
    for before, function, result in errors:  # they come after the end, within the tick
        triggers.consume(made.call(end - before, 5, function, ret=result))
    triggers.consume(Sample(MARK, end, {}))
    assert all(trigger.kind == ENDED for trigger in found)
    return [trigger.text for trigger in found]


def test_ends_that_nobody_requested_are_reported_with_their_reason() -> None:
    assert _ended(11) == ["process 10 was ended by SIGSEGV"]
    assert _ended(9, killed=[4, 5]) == ["process 10 was ended by the kernel for lack of memory"]
    assert _ended(9, killed=[4, 4]) == ["process 10 was ended by SIGKILL"]
    (text,) = _ended(1 << 8, (SECOND, "cudaMalloc", 2))
    assert text == "process 10 ended with status 1 after cudaMalloc had failed (error 2, no memory)"


def test_ends_in_order_are_not_reported() -> None:
    assert _ended(0) == []
    assert _ended(15) == []
    assert _ended(2) == []
    assert _ended(0, (SECOND, "cudaMalloc", 2)) == []  # it has coped with it
    assert _ended(1 << 8) == []
    assert _ended(1 << 8, (SECOND, "cudaEventQuery", 600)) == []  # no error: not ready
    assert _ended(1 << 8, (90 * SECOND, "cudaMalloc", 2)) == []


class _Kept:
    """A keeper over a daemon that observes nothing, on a clock of the test's."""

    def __init__(self, folder: Path, header: dict[str, Any] = HEADER, **limits: Any) -> None:
        self.now = 0.0
        history = History(header)
        self.daemon = Daemon(header, history, LiveExplainer(header))
        self.keeper = Keeper(self.daemon, str(folder), KeepLimits(**limits), clock=lambda: self.now)
        self.second = 0
        self.tick()

    def tick(self) -> None:
        self.second += 1
        at = START + self.second * SECOND
        self.daemon.consume(made.call(at - MS, MS))
        self.daemon.consume(Sample(MARK, at, {"number": self.second, "lost": {}}))

    def ask(self, pid: int, kind: str = SLOW_STEP) -> None:
        self.keeper.keep(Trigger(kind, pid, START + self.second * SECOND, f"of {pid}"))

    def write(self) -> None:
        for _ in range(40):
            self.tick()
        self.keeper.turn(whatever=False)


def test_one_session_of_a_process_in_a_while_and_so_many_of_a_user_in_an_hour(tmp_path: Path) -> None:
    kept = _Kept(tmp_path, every_s=600, an_hour=3)
    for _ in range(5):
        kept.ask(1)
    kept.write()
    kept.ask(1)
    kept.write()
    assert (len(kept.keeper.files()), kept.keeper.left_out) == (1, 1)
    for pid in (2, 3, 4, 5):
        kept.ask(pid)
        kept.write()
    assert (len(kept.keeper.files()), kept.keeper.left_out) == (3, 3)
    kept.now = 4000
    kept.ask(6)
    kept.write()
    assert len(kept.keeper.files()) == 4
    kept.ask(0, REQUESTED)
    kept.ask(0, REQUESTED)
    kept.write()
    assert len(kept.keeper.files()) == 5


def _markers(path: str) -> tuple[list[str], int]:
    """The markers' texts, and the second of the last mark."""
    reader = SessionReader(path)
    texts, last = [], 0
    for item in reader.items():
        if (marker := sample_data(item, MARKER)) is not None:
            texts.append(marker["text"])
        elif sample_data(item, MARK) is not None:
            last = (item.time_ns - START) // SECOND
    reader.close()
    return texts, last


def test_processes_of_a_user_that_stall_together_share_a_session(tmp_path: Path) -> None:
    kept = _Kept(tmp_path, before_s=100, after_s=10)
    for pid, uid in ((1, 1000), (2, 1000), (3, 1000), (4, 1000), (9, 2000)):
        kept.daemon.consume(made.process(pid, uid=uid))
    kept.ask(1)  # at 1 s: the session ends at 11 s
    kept.tick()
    kept.ask(9)  # another user's
    kept.ask(2)  # at 2 s: at 12 s
    for _ in range(9):
        kept.tick()
    kept.ask(3)  # at 11 s: at 21 s, twice as long as one event's
    kept.ask(1)
    for _ in range(9):
        kept.tick()
    kept.keeper.turn(whatever=False)
    kept.ask(4)  # at 20 s
    kept.write()
    found = {uid: _markers(path) for path, uid, *_ in kept.keeper.files()}
    assert found == {1000: (["of 1", "of 2", "of 3", "of 1", "of 4"], 21), 2000: (["of 9"], 12)}
    kept.ask(2)  # in a session already, less than --every ago
    kept.write()
    assert (len(kept.keeper.files()), kept.keeper.left_out) == (2, 1)


@pytest.mark.parametrize("private", [True, False])
def test_a_private_daemon_keeps_no_names_of_others_and_no_command_lines(
    private: bool, tmp_path: Path
) -> None:
    own = made.process(10, name="train", command="python /home/eve/secret.py", user="eve")
    kept = _Kept(tmp_path, {**HEADER, "machine": {"host": "evesnode"}, "private": private})
    kept.daemon.consume(own)
    kept.daemon.consume(made.names(START, {70: "evesgame"}, 70))
    kept.keeper.keep(Trigger(SLOW_STEP, 10, START + SECOND, "slow at /home/eve/secret.py:7"))
    kept.write()
    ((path, *_),) = kept.keeper.files()
    reader = SessionReader(path)
    text = str([reader.header, *(item.data for item in reader.items() if isinstance(item, Sample))])
    reader.close()
    told = [word for word in ("evesnode", "/home/eve", "'eve'", "evesgame", "python") if word in text]
    assert told == ([] if private else ["evesnode", "/home/eve", "'eve'", "evesgame", "python"])
    assert "'train'" in text
    assert "secret.py:7" in text


def test_the_oldest_of_who_holds_most_goes_when_the_folder_is_full(tmp_path: Path) -> None:
    sizes = {"20260101-000000-ended-1": 40, "20260101-000001-ended-2": 60, "20260101-000002-ended-3": 60}
    for age, (name, size) in enumerate(sizes.items()):
        (tmp_path / f"{name}.msgpack").write_bytes(b"x" * size)
        os.utime(tmp_path / f"{name}.msgpack", (age, age))
    if os.geteuid() == 0:
        for name in list(sizes)[1:]:
            os.chown(tmp_path / f"{name}.msgpack", 1000, 1000)
    (tmp_path / "somebody's notes").write_bytes(b"x" * 4000)
    kept = _Kept(tmp_path, most_bytes=200)
    kept.keeper.make_room()
    left = {path.name for path in tmp_path.iterdir()}
    gone = "20260101-000001-ended-2" if os.geteuid() == 0 else "20260101-000000-ended-1"
    assert left == {"somebody's notes", *(f"{name}.msgpack" for name in sizes if name != gone)}


def test_what_cannot_be_written_is_reported_and_the_next_one_is_tried(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    kept = _Kept(folder)
    folder.rmdir()
    kept.ask(1)
    kept.write()
    assert "could not be kept" in kept.keeper.failures[0]
    folder.mkdir()
    kept.ask(2)
    kept.write()
    assert len(kept.keeper.files()) == 1


def test_of_a_file_that_could_not_be_written_whole_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_writer: SessionWriter) -> None:
        raise SessionError("no space left on device")

    kept = _Kept(tmp_path)
    kept.ask(1)
    monkeypatch.setattr(SessionWriter, "close", full)
    kept.write()
    assert "no space left" in kept.keeper.failures[0]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_daemon_left_half_written_goes_at_the_next_start(tmp_path: Path) -> None:
    half, other = tmp_path / "20260101-000000-ended-1.msgpack.part", tmp_path / "mine.part"
    for path in (half, other):
        path.write_bytes(b"x")
    _Kept(tmp_path)
    assert list(tmp_path.iterdir()) == [other]


def test_a_folder_in_which_others_may_write_is_refused(tmp_path: Path) -> None:
    """They could put another file in the place of one that is given away."""
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="other users can write"):
        _Kept(tmp_path)
