"""Whom ``--pid`` probes: own links where little can be missed, the machine's from the first birth on."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from probes import schema
from probes.ebpf.attacher import Attachments
from probes.observe import scope
from probes.observe.scope import MOST_OWN, Scope
from probes.samples import text_of
from probes.schema import ExitFlag, Kind, Records
from tests import items

PID = 700


class Links(Attachments):
    """Links that say what was done to them."""

    def __init__(self, refused: str = "") -> None:
        self.done: list[str] = []
        self._refused = refused

    def narrow(self, pids: tuple[int, ...]) -> None:
        self.done.append(f"narrow {pids}")

    def widen(self) -> list[str]:
        self.done.append("widen")
        return [self._refused] if self._refused else []

    def part(self) -> None:
        self.done.append("part")


@pytest.fixture(autouse=True)
def all_have_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes have it open but for number 1."""
    monkeypatch.setattr(scope, "has_cuda", lambda pid: pid != 1)


def narrow(links: Links) -> Scope:
    """A scope that has begun with one process."""
    made = Scope(links, sessions=True)
    (note,) = made.begin([PID], [])
    assert text_of(note).startswith(f"only process {PID} is probed")
    return made


def told(made: Scope, *records: Records) -> list[tuple[str, str]]:
    """Kind and text of what follows from records."""
    return [(one.kind, text_of(one)) for one in made.notice(np.concatenate(records))]


def ago(seconds: float) -> int:
    return time.monotonic_ns() - round(seconds * 1e9)


def since_ms(then_ns: int) -> int:
    """Whole milliseconds until now, at least: what was reported of an earlier moment is no more."""
    return math.ceil((time.monotonic_ns() - then_ns) / 1e6)


def states(depth: int, since: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """A thread with a call open."""
    made = np.zeros(1, schema.THREAD_STATE_DTYPE)
    made["depth"] = depth
    made["calls"]["start"][:, 0] = since
    return made


@pytest.mark.parametrize(
    ("pids", "sessions"),
    [
        ([], True),
        ([PID, 1], True),  # one without CUDA may be a launcher, whose children come to have it
        (range(PID, PID + MOST_OWN + 1), True),
        ([PID], False),  # the kernel may let one thread of it alone meet the program
    ],
    ids=["nobody", "without CUDA", "many", "older kernel"],
)
def test_else_links_are_the_machines_and_nothing_is_reported(pids: list[int], sessions: bool) -> None:
    links = Links()
    made = Scope(links, sessions=sessions)
    assert not list(made.begin(pids, []))
    assert not told(made, items.event(Kind.EXEC, ago(1), pid=PID, tid=PID))
    assert not links.done
    assert made.seen_from_ns == 0


def test_several_processes_are_named() -> None:
    links = Links()
    (note,) = Scope(links, sessions=True).begin([PID], [PID + 1])
    assert text_of(note).startswith(f"only processes {PID}, {PID + 1} are probed")
    assert links.done == [f"narrow ({PID}, {PID + 1})"]


def test_threads_come_and_go_and_nothing_changes() -> None:
    links = Links()
    made = narrow(links)
    born = items.event(Kind.FORK, ago(1), pid=PID, tid=PID + 1, next_pid=PID, next_tid=PID)
    ended = items.event(Kind.EXIT, ago(1), pid=PID, tid=PID + 1)
    whole = items.event(Kind.EXIT, ago(1), pid=PID, tid=PID, flags=int(ExitFlag.GROUP_DEAD))
    assert not told(made, born, ended, whole)
    assert math.isinf(made.seen_from_ns)
    assert len(links.done) == 1


def test_a_child_widens_and_is_a_note() -> None:
    links = Links()
    made = narrow(links)
    born_ns = ago(0.5)
    ((kind, text),) = told(
        made, items.event(Kind.FORK, born_ns, pid=PID + 1, tid=PID + 1, next_pid=PID, next_tid=PID)
    )
    assert kind == "note"
    assert text.startswith(f"process {PID + 1} began: ")
    assert 500 <= int(text.split()[-3]) <= since_ms(born_ns)
    assert links.done[1:] == ["widen"]
    again = items.event(Kind.FORK, ago(0), pid=PID + 2, tid=PID + 2, next_pid=PID, next_tid=PID)
    assert not told(made, again), "once"


def test_a_first_thread_that_ends_before_the_others_widens() -> None:
    made = narrow(links := Links())
    ((_, text),) = told(made, items.event(Kind.EXIT, ago(0), pid=PID, tid=PID))
    assert "goes on without its first thread" in text
    assert links.done[1:] == ["widen"]


def test_who_became_another_program_before_is_a_problem_also_where_it_is_read_later() -> None:
    made = narrow(Links())
    born = items.event(Kind.FORK, ago(0.4), pid=PID + 1, tid=PID + 1, next_pid=PID, next_tid=PID)
    became = items.event(Kind.EXEC, ago(0.3), pid=PID + 1, tid=PID + 1)
    other = items.event(Kind.EXEC, ago(0.2), pid=PID + 2, tid=PID + 2)
    (_, (kind, text)) = told(made, born, became)
    assert kind == "problem"
    assert text.startswith(f"calls of process {PID + 1} may be missing")
    ((kind, _),) = told(made, other)
    assert kind == "problem"
    assert not told(made, items.event(Kind.EXEC, ago(-1000), pid=PID + 3, tid=PID + 3))


def test_a_child_of_a_descendant_without_cuda_may_have_called_it() -> None:
    made = Scope(Links(), sessions=True)
    assert list(made.begin([PID], [1])), "a descendant may be a helper that never calls CUDA"
    born_ns = ago(0.4)
    (_, (kind, text)) = told(
        made, items.event(Kind.FORK, born_ns, pid=PID + 1, tid=PID + 1, next_pid=1, next_tid=1)
    )
    assert kind == "problem"
    missing, after = text.split(": it was not probed for its first ")
    assert missing == f"calls of process {PID + 1} may be missing"
    assert 400 <= int(after.split()[0]) <= since_ms(born_ns)


def test_a_child_of_one_with_cuda_is_a_problem_when_it_calls_all_the_same() -> None:
    made = narrow(Links())
    told(made, items.event(Kind.FORK, ago(0.4), pid=PID + 1, tid=PID + 1, next_pid=PID, next_tid=PID))
    threads = np.concatenate([states(0, 0), states(0, 0)])
    threads["pid"], threads["called"] = [PID, PID + 1], [1, 0]
    assert not list(made.at_mark(threads))
    threads["called"] = 1
    (problem,) = made.at_mark(threads)
    assert text_of(problem).startswith(f"calls of process {PID + 1} may be missing")
    assert not list(made.at_mark(threads)), "once"


def test_a_library_that_is_not_taken_again_is_a_problem() -> None:
    made = narrow(Links("libcuda.so.1 is not probed any more"))
    found = told(made, items.event(Kind.EXEC, ago(0), pid=PID, tid=PID))
    assert ("problem", "libcuda.so.1 is not probed any more") in found


def test_old_links_go_when_no_call_is_open_that_they_saw_begin() -> None:
    made, before = narrow(links := Links()), ago(1)
    assert not list(made.at_mark(states(1, before)))
    told(made, items.event(Kind.EXEC, ago(0), pid=PID, tid=PID))
    assert not list(made.at_mark(states(1, before)))
    assert "part" not in links.done
    assert not list(made.at_mark(states(1, ago(-1000))))
    assert links.done[-1] == "part"
    assert not list(made.at_mark(states(0, 0)))
    assert links.done.count("part") == 1
