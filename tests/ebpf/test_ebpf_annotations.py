"""Annotations without CUPTI: the ranges of a loop's callbacks are in records, chains, steps and tables."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.chains.named_ranges import NamedRanges, numbers_apart
from gputop.analysis.evidence.evidence import Evidence
from probes.activities import activity_rows
from probes.inside.annotation_socket import AnnotationSocket, own_socket
from probes.observe.live_source import LiveSource
from probes.observe.plan import LivePlan
from probes.samples import sample_data
from probes.source import ACTIVITY, MARK
from tests import inside
from tests.bench.tmux import Terminal
from tests.ebpf.inside_evidence import evidence_of
from tests.ebpf.recording import TIMEOUT_S, Workshop
from tests.observed_demo import SLEEPS
from tests.rootless_support import environment
from tests.serving import marks_go_on, serving

pytestmark = [pytest.mark.ebpf, pytest.mark.timeout(300)]
PROGRAM = Path(__file__).resolve().parent / "programs" / "annotates.py"
FLAGS = ("--simgpu",)
LATE_NS = 2_000_000  # from the program's clock to its send; a machine that is busy may stop it in between


def paths(evidence: Evidence) -> set[str]:
    """The paths of ranges in which threads that called CUDA were, numbers as ``#``."""
    ranges, found = NamedRanges(evidence.activities), set[str]()
    whole = np.array([0]), np.array([2**62])
    calls = evidence.calls
    for pid, tid in set(zip(calls["pid"].tolist(), evidence.threads.tid[calls["row"]].tolist(), strict=True)):
        found |= numbers_apart(ranges.of(pid, tid).times(*whole)).keys()
    return found


def test_a_loops_callbacks_name_steps_that_the_explanation_uses(tmp_path: Path) -> None:
    run = Workshop(tmp_path).record(sys.executable, str(PROGRAM), "40", flags=FLAGS)
    evidence, said = evidence_of(run.path)
    assert said == []
    assert not len(evidence.lost[0])
    (own,) = run.said
    rows, texts = evidence.activities.of("range"), evidence.activities.texts
    found = sorted((int(row["begin"]), texts[row["name"]], int(row["tid"]), int(row["end"])) for row in rows)
    logged = sorted((begin, name, tid, end) for name, tid, begin, end in own["ranges"])
    assert [(one[1], one[2]) for one in found] == [(one[1], one[2]) for one in logged]
    late = 0
    for (begin, _name, _tid, end), (before, _n, _t, after) in zip(found, logged, strict=True):
        assert before <= begin + 50_000
        assert end <= after + 50_000
        late += (begin - before > LATE_NS) + (after - end > LATE_NS)
    assert late < len(found) / 10
    report = json.loads(inside.run("explain", str(run.path), "--json").stdout)
    assert report["steps"]["count"] in (80, 79)
    assert "epoch #/step/log" in paths(evidence)
    # which of them is first depends on who else wants the CPUs
    assert any("in range `epoch #/step/log`" in json.dumps(one["chain"]) for one in report["findings"])
    assert any("in range `epoch #/step/log`" in json.dumps(one["evidence"]) for one in report["findings"])


def test_a_shell_names_a_range_around_the_programs_that_it_starts(tmp_path: Path) -> None:
    gputop = f"{shlex.quote(sys.executable)} -m gputop annotate"
    work = f"{shlex.quote(sys.executable)} {shlex.quote(str(PROGRAM))} 60"
    script = f'{gputop} begin "task 7" && {work}; {gputop} end "task 7"'
    run = Workshop(tmp_path).record("sh", "-c", script, flags=FLAGS)
    evidence, said = evidence_of(run.path)
    assert said == []
    spans, texts = evidence.activities.of("span"), evidence.activities.texts
    trained = {int(one) for one in evidence.calls["pid"]}
    assert {texts[one] for one in spans["name"]} == {"task 7"}
    assert trained <= {int(one) for one in spans["pid"]}
    for pid in trained:
        (span,) = spans[spans["pid"] == pid]
        mine = evidence.calls["pid"] == pid
        assert span["begin"] < evidence.calls["begin"][mine].min()
        assert evidence.calls["end"][mine].max() < span["end"]
    assert "task 7/epoch #/step/log" in paths(evidence)


ONE_CALL = "from cuda import Cuda; c = Cuda(); c.Memset(c.malloc(64), 0, 64)"


def test_a_shells_range_covers_programs_that_live_between_two_marks(tmp_path: Path) -> None:
    gputop = f"{shlex.quote(sys.executable)} -m gputop annotate"
    brief = "; ".join([f"{shlex.quote(sys.executable)} -c {shlex.quote(ONE_CALL)}"] * 6)
    run = Workshop(tmp_path).record("sh", "-c", f"{gputop} begin job; {brief}; {gputop} end job", flags=FLAGS)
    evidence, said = evidence_of(run.path)
    assert said == []
    called = {int(one) for one in evidence.calls["pid"]}
    assert len(called) == 6
    assert called <= {int(one) for one in evidence.activities.of("span")["pid"]}


@pytest.mark.parametrize("by", ["callbacks", "shell"])
def test_the_live_screen_names_the_range_in_which_a_thread_keeps_the_gpu_idle(
    tmp_path: Path, by: str
) -> None:
    """A range is known once it has ended, so of a shell's tasks the screen names the earlier ones."""
    python = shlex.quote(sys.executable)
    work, words = [sys.executable, str(PROGRAM), "3000"], "in range `step/log`"
    if by == "shell":
        say, step = f"{python} -m gputop annotate", f"{python} {shlex.quote(str(PROGRAM))} 40"
        work = ["sh", "-c", f"for n in $(seq 99); do {say} begin build && {step}; {say} end build; done"]
        words = "in range `build"
    env = environment(tmp_path) | SLEEPS | {"SELF_LOG": str(tmp_path / "log")}
    changed = [f"{name}={value}" for name, value in env.items() if os.environ.get(name) != value]
    sized = ("-u", "COLUMNS", "-u", "LINES")  # what the tests set stands above the terminal's own size
    command = ["env", *sized, *changed, sys.executable, "-m", "gputop", *FLAGS, "--", *work]
    with Terminal(tmp_path, (160, 50)) as terminal:
        terminal.keys(shlex.join(command), "Enter")
        terminal.wait(lambda: "its ranges" in terminal.screen(), TIMEOUT_S)
        terminal.keys("w")
        terminal.wait(lambda: words in " ".join(terminal.screen().split()), TIMEOUT_S)
        terminal.keys("q")
        terminal.wait(lambda: "its ranges" in terminal.screen(), TIMEOUT_S)
        terminal.keys("q")
        terminal.wait(terminal.at_prompt, TIMEOUT_S)


@pytest.mark.parametrize(
    "within", [(), ("unshare", "--pid", "--mount-proc", "--fork")], ids=["here", "container"]
)
def test_of_a_program_that_the_daemon_observes_ranges_are_in_its_history(
    tmp_path: Path, within: tuple[str, ...]
) -> None:
    """By the well-known socket; in a container processes and threads have other numbers."""
    log, path = tmp_path / "log", tmp_path / "history.gputop"
    env = (
        environment(tmp_path)
        | SLEEPS
        | {"GPUTOP_ANNOTATE": str(tmp_path / "annotate.sock"), "SELF_LOG": str(log)}
    )
    with serving(tmp_path, "--keep-dir", "") as daemon:
        subprocess.run([*within, sys.executable, str(PROGRAM), "40"], env=env, check=True, timeout=TIMEOUT_S)
        marks_go_on(daemon)  # what has ended since the last one is not in the history yet
        assert daemon.client("dump", "-o", str(path)).returncode == 0
    evidence, said = evidence_of(path)
    # the daemon observes all of the machine: problems of other programs are theirs
    assert [one for one in said if "annotations" in one] == []
    (own,) = map(json.loads, log.read_text().splitlines())
    rows, texts = evidence.activities.of("range"), evidence.activities.texts
    assert sorted(texts[one] for one in rows["name"]) == sorted(name for name, *_ in own["ranges"])
    (pid,) = set(rows["pid"].tolist())
    assert (evidence.calls["pid"] == pid).sum() >= 160, (
        "a launch and a wait a step; the daemon sees others, too"
    )
    assert "epoch #/step/log" in paths(evidence)
    if within:
        assert {tid for _name, tid, *_ in own["ranges"]} != set(rows["tid"].tolist())


BRIEF = """
import json, os, socket, sys
sys.stdin.readline()
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for act in ("begin", "end"):
    out.sendto(json.dumps({act: "brief"}).encode(), sys.argv[1].replace("@", chr(0), 1))
"""


def test_the_ranges_of_a_program_that_has_ended_are_complete_however_late_the_sockets_thread_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AnnotationSocket, "start", lambda _self: None)  # starved: it never runs
    bound, address = own_socket()
    gate = subprocess.Popen([sys.executable, "-c", BRIEF, address], stdin=subprocess.PIPE, text=True)
    source = LiveSource(LivePlan(pids=(gate.pid,), annotations=bound))
    source.start()
    rows: list[tuple[str, int, int]] = []
    try:
        gate.communicate("\n")
        marks = 0
        for item in source.items():
            if (data := sample_data(item, ACTIVITY)) is not None:
                table, texts = activity_rows(data)
                rows += [(texts[row["name"]], row["pid"], row["end"] - row["begin"]) for row in table]
            marks += sample_data(item, MARK) is not None
            if marks == 3:
                break
    finally:
        source.close()
    ((name, pid, lasted_ns),) = rows
    assert (name, pid) == ("brief", gate.pid)
    assert 0 < lasted_ns < 10**9
