"""Which line calls come from: added up over ticks, shown in a table, and shown in its file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.answer.report_output import report_to_text
from gputop.engine.calls.linesums import LineSums, line_rows, wait_rows
from gputop.engine.calls.source_text import read_source
from gputop.engine.calls.stack_table import Line
from gputop.engine.engine import Engine
from gputop.engine.facts import Facts
from gputop.engine.frame import Frame, LineRow, Lost, SampleRow, WaitRow
from gputop.engine.session_totals import ProcessTotals, Stats
from gputop.engine.stats_output import stats_to_text
from gputop.engine.wallclock import WallClock
from gputop.playback.player import frame_at
from gputop.ui.model.process.line_table import line_uses
from gputop.ui.model.process.source_page import coloured
from gputop.ui.page_screens import WhyPage
from probes.files.source_texts import MOST_BYTES
from probes.schema import ALIASED, RECORD, CallFlag, Kind, Records
from probes.source import APIS, FRAMES, Sample
from replay.reader import SessionReader
from tests import fake_frames as fake
from tests import items
from tests.fake_reports import explained, finding, report
from tests.screen_support import Shown

RECORDINGS = Path(__file__).parent.parent / "recordings"

S = 1_000_000_000
READ = Line("/app/train.py", 3, "mask")
STEP = Line("/app/train.py", 9, "step")
TORCH = Line("/usr/lib/python3.11/site-packages/torch/cuda.py", 1, "synchronize")
FIRST, SECOND, UNTOLD, NO_PYTHON = 1 << 62 | 7, 1 << 62 | 9, 1 << 62 | 11, 1


def calls(*rows: tuple[int, int, int, int, int]) -> Records:
    """CALL records of (pid, function, stack, duration, flags)."""
    made = np.zeros(len(rows), RECORD)
    made["kind"] = Kind.CALL
    for place, (pid, op, stack, duration, flags) in enumerate(rows):
        record = made[place]
        record["pid"], record["op"], record["stack"] = pid, op, stack
        record["duration"], record["flags"] = duration, flags
    return made


@pytest.fixture
def facts() -> Facts:
    found = Facts()
    found.consume(Sample(APIS, 0, {"rows": [["cudaMemcpy", "runtime", ""], ["cudaFree", "runtime", ""]]}))
    frames = [[[*line_of(TORCH)], [*line_of(READ)]], [[*line_of(STEP)]]]
    found.consume(Sample(FRAMES, 0, {"pid": [5, 5], "stack": [FIRST, SECOND], "frames": frames}))
    return found


def line_of(line: Line) -> tuple[str, int, str]:
    return line.file, line.line, line.function


# -- adding up -----------------------------------------------------------------------------------


def test_calls_are_added_up_by_the_innermost_line_outside_of_packages(facts: Facts) -> None:
    sums = LineSums()
    sums.add_calls(
        calls((5, 0, FIRST, 10, 0), (5, 1, FIRST, 5, 0), (5, 0, SECOND, 100, 0), (5, 0, FIRST, 30, 0))
    )
    rows, unknown = line_rows(sums.lines, facts)
    assert rows == {
        5: [
            LineRow(STEP, "cudaMemcpy", 1, 100, (STEP,)),
            LineRow(READ, "cudaMemcpy", 2, 40, (TORCH, READ)),
            LineRow(READ, "cudaFree", 1, 5, (TORCH, READ)),
        ]
    }
    assert unknown == {}


def test_nested_calls_and_calls_that_were_not_requested_do_not_count(facts: Facts) -> None:
    sums = LineSums()
    sums.add_calls(calls((5, 0, FIRST, 10, CallFlag.NESTED), (5, 0, 0, 10, 0)))
    assert sums.lines == {}


def test_calls_without_a_line_are_counted_by_process(facts: Facts) -> None:
    sums = LineSums()
    sums.add_calls(calls((5, 0, NO_PYTHON, 10, 0), (6, 0, NO_PYTHON, 10, 0), (6, 1, UNTOLD, 10, 0)))
    assert line_rows(sums.lines, facts) == ({}, {5: 1, 6: 2})


def test_what_is_older_than_the_window_is_gone() -> None:
    engine = Engine(items.HEADER, window_ns=items.SECOND)
    for tick in range(1, 5):
        engine.feed(calls((5, 0, FIRST, 10, 0)))
        engine.feed(items.mark(tick, items.START + tick * items.SECOND // 2))
        (process,) = engine.frame().processes
        assert process.unknown_lines == min(tick, 2)


def waits(*rows: tuple[int, int, int, int]) -> Records:
    """OFFCPU records of (thread, stack, duration, the part of it in a run queue), of process 5."""
    made = np.zeros(len(rows), RECORD)
    made["kind"], made["pid"] = Kind.OFFCPU, 5
    for column, values in zip(("tid", "stack", "duration", "runnable"), zip(*rows, strict=True), strict=True):
        made.view(ALIASED)[column] = values
    return made


def test_waits_are_added_up_by_line_without_the_time_in_a_run_queue(facts: Facts) -> None:
    sums = LineSums()
    sums.add_offcpu(waits((5, FIRST, 30, 10), (5, SECOND, 90, 0), (5, FIRST, 50, 5), (5, 0, 99, 0)))
    rows, unknown = wait_rows(sums.waits, {5}, {5}, facts)
    assert rows == {5: [WaitRow(STEP, 1, 90), WaitRow(READ, 2, 65)]}
    assert unknown == {}


def test_waits_of_threads_that_make_no_calls_count_only_where_none_does(facts: Facts) -> None:
    sums = LineSums()
    sums.add_offcpu(waits((5, FIRST, 30, 0), (6, FIRST, 900, 0), (6, NO_PYTHON, 900, 0)))
    assert wait_rows(sums.waits, {5}, {5, 77}, facts) == ({5: [WaitRow(READ, 1, 30)]}, {})
    assert wait_rows(sums.waits, set(), {77}, facts) == ({5: [WaitRow(READ, 2, 930)]}, {5: 1})
    assert wait_rows(sums.waits, {5}, {77}, facts) == ({}, {}), "who calls has not waited"


def test_calls_of_autograd_s_threads_are_at_the_line_that_waits_in_backward(facts: Facts) -> None:
    native, backward, other = (1 << 62 | number for number in (21, 23, 25))
    torch = "/usr/lib/python3.11/site-packages/torch"
    engine = [f"{torch}/lib/libtorch_cpu.so", 0, "torch::autograd::Engine::thread_main+0x41"]
    within = [[f"{torch}/_tensor.py", 581, "backward"], [*line_of(STEP)]]
    elsewhere = [[f"{torch}/_tensor.py", 581, "backward"], [*line_of(READ)]]
    told = {"pid": [5] * 3, "stack": [native, backward, other], "frames": [[engine], within, elsewhere]}
    facts.consume(Sample(FRAMES, 0, told))
    made = calls((5, 0, native, 10, 0), (6, 0, native, 10, 0))
    sums = LineSums()
    sums.add_calls(made)
    sums.add_offcpu(waits((5, backward, 30, 0), (5, FIRST, 30, 0)))
    rows, _ = line_rows(sums.lines, facts, sums.waits)
    assert [row.line for row in rows[5]] == [STEP]
    assert [row.line.brief for row in rows[6]] == [engine[2]], "nobody waits in that process"
    sums.add_offcpu(waits((5, other, 30, 0)))
    rows, _ = line_rows(sums.lines, facts, sums.waits)
    assert [row.line.brief for row in rows[5]] == [engine[2]], "which of two lines it is, is not known"


# -- the table -----------------------------------------------------------------------------------


def frame(*rows: LineRow, **changes: object) -> Frame:
    process = fake.process(0, lines=rows)
    made = replace(fake.frame(processes=1), processes=(process,), lines="slow")
    return replace(made, **changes)  # type: ignore[arg-type]


def to_lines(shown: Frame, *, mode: str = "live", size: tuple[int, int] = (120, 40)) -> Shown:
    """The screen with the tab of lines."""
    return Shown(shown, "up", "enter", "tab", size=size, replay=mode == "replay")


def test_a_line_that_calls_several_functions_is_one_row() -> None:
    rows = (
        LineRow(READ, "cudaMemcpy", 8, 60),
        LineRow(STEP, "cudaFree", 1, 30),
        LineRow(READ, "cudaFree", 2, 10),
    )
    first, second = line_uses(fake.process(0, lines=rows))
    assert (first.line, first.api, first.others, first.count, first.sum_ns) == (READ, "cudaMemcpy", 1, 10, 70)
    assert (first.share, second.share) == (0.7, 0.3)


def test_a_line_that_waits_has_a_row_like_one_that_calls() -> None:
    process = fake.process(0, lines=(LineRow(READ, "cudaMemcpy", 8, 60),))
    process = replace(process, waits=(WaitRow(STEP, 2, 120), WaitRow(READ, 1, 20)))
    first, second = line_uses(process)
    assert (first.line, first.api, first.count, first.share) == (STEP, "off-CPU", 2, 0.6)
    assert (second.line, second.api, second.others, second.sum_ns) == (READ, "cudaMemcpy", 1, 80)


def test_the_tab_shows_place_function_rate_time_and_share() -> None:
    shown = frame(
        LineRow(READ, "cudaMemcpyAsync", 800, S), LineRow(STEP, "cudaFree", 2, S // 9), window_ns=2 * S
    )
    made = to_lines(shown)
    (row,) = [line for line in made.text().splitlines() if "train.py:3" in line]
    assert row.strip("│").split()[-6:] == ["›train.py:3", "mask", "400", "500ms", "90", "cudaMemcpyAsync"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
def test_lines_can_be_seen_at_every_size(width: int, height: int) -> None:
    made = to_lines(frame(LineRow(READ, "cudaMemcpyAsync", 800, S)), size=(width, height))
    assert "train.py:3" in made.text()


@pytest.mark.parametrize(
    ("changes", "mode", "said"),
    [
        ({"lines": "off"}, "live", "without --stacks off"),
        ({"lines": "off"}, "replay", "This recording has no lines"),
        ({"calls_observed": False}, "live", "not known without eBPF"),
        ({}, "live", "No sync, copy, allocation or graph call"),
    ],
)
def test_an_empty_tab_says_why(changes: dict[str, object], mode: str, said: str) -> None:
    made = to_lines(frame(**changes), mode=mode)
    assert said in made.text()


@pytest.mark.slow
def test_calls_of_unknown_lines_are_reported() -> None:
    made = to_lines(replace(frame(), processes=(fake.process(0, unknown_lines=31),)))
    assert "31 calls of unknown lines" in made.text()


def test_calls_of_unknown_lines_are_reported_beside_known_ones() -> None:
    rows = (LineRow(READ, "cudaMemcpyAsync", 800, S),)
    process = fake.process(0, lines=rows, unknown_lines=31)
    made = to_lines(replace(frame(), processes=(process,)))
    assert "and 31 calls of unknown lines" in made.text()
    totals = ProcessTotals(5, "train", "", False, (), (), rows, 31)
    said = stats_to_text(Stats(0, S, Lost(0), 0, (totals,), ()), None)
    assert [line.split()[:4] for line in said.splitlines() if "unknown" in line] == [
        ["31", "of", "unknown", "lines:"]
    ]


@pytest.mark.slow
def test_a_line_without_a_number_says_so() -> None:
    unnumbered = replace(READ, line=0)
    made = to_lines(frame(LineRow(unnumbered, "cudaFree", 1, 1)))
    assert "train.py:?" in made.text()
    assert unnumbered.text() == "train.py:? in mask()"


def test_no_report_sends_control_characters_to_the_terminal() -> None:
    hostile = "a\x1b[2J\x9b\x07\nb"
    told = finding(advice=(hostile,), evidence=(hostile,), ruled_out=(hostile,), title=hostile)
    said = report_to_text(report(told, verdict=hostile, notes=(hostile,)))
    assert "\\x1b" in said
    assert all(character.isprintable() for character in said.replace("\n", ""))


@pytest.mark.slow
def test_a_hostile_name_is_shown_escaped() -> None:
    made = to_lines(frame(LineRow(Line("/x/\x1b[2J.py", 1, "f\x07"), "cudaFree", 1, 1)))
    assert "\x1b" not in made.text()
    assert "\x07" not in made.text()
    made.press("enter")
    assert "Source of" in made.text()
    assert "\x1b" not in made.text()
    assert "\x07" not in made.text()


# -- the source ----------------------------------------------------------------------------------


@pytest.fixture
def train(tmp_path: Path) -> Line:
    file = tmp_path / "train.py"
    file.write_text("".join(f"line_{number}()\n" for number in range(1, 400)))
    os.utime(file, (1, 1))
    return Line(str(file), 200, "mask")


@pytest.mark.slow
def test_enter_on_a_line_shows_it_in_its_file_with_what_its_neighbours_cost(train: Line) -> None:
    stack = (Line("/lib/libcudart.so", 0, "synchronize+0x41"), train)
    rows = (
        LineRow(train, "cudaMemcpy", 800, S, stack),
        LineRow(replace(train, line=202), "cudaFree", 20, S // 10),
    )
    made = to_lines(frame(*rows, window_ns=2 * S), mode="replay")
    made.press("enter")
    shown = made.text().splitlines()
    told = "stack  train.py:200 in mask(); through 1 native (synchronize+0x41 in libcudart.so)"
    assert any(told in line for line in shown), "one's own code first"
    (here,) = [line for line in shown if "line_200()" in line]
    (neighbour,) = [line for line in shown if "line_202()" in line]
    assert here.split()[:5] == ["400", "500ms", "200", "›", "line_200()"]
    assert neighbour.split()[:4] == ["10", "50.0ms", "202", "line_202()"]
    assert any(str(train.file) in line for line in shown)
    made.press("escape")
    assert "line_200()" not in made.text()


def test_a_line_that_computes_shows_its_samples_beside_the_lines_that_call(train: Line) -> None:
    computes = replace(train, line=204)
    row = frame(LineRow(train, "cudaMemcpy", 800, S), window_ns=2 * S)
    sampled = replace(row.processes[0], samples=(SampleRow(computes, 63), SampleRow(train, 7)), sampled=100)
    made = to_lines(replace(row, processes=(sampled,)), mode="replay")
    made.press("enter")
    shown = made.text().splitlines()
    (hot,) = [line for line in shown if "line_204()" in line]
    (calls,) = [line for line in shown if "line_200()" in line]
    assert hot.split() == ["63", "204", "line_204()"], "percent of the samples of the process, and no call"
    assert calls.split() == ["7", "400", "500ms", "200", "›", "line_200()"]


def test_code_has_the_colours_of_what_its_words_are() -> None:
    lines = ('text = """', "def not_code():", '"""', "def f(x):  # why", "    return len(x) + 12")
    found = coloured(lines, 2, 5, "/x/train.py")
    assert found[2] == (("def not_code():", "chrome"),), "within a string that began before"
    parts = dict(span for number in (4, 5) for span in found[number])
    assert parts["def"] == parts["return"] == "busy"
    assert parts["# why"] == "dim"
    assert parts["12"] == "host"
    assert "".join(part for part, _ in found[5]) == lines[4]
    assert coloured(lines, 1, 5, "/x/no.suchlanguage") == {}


def test_samples_of_a_recording_reach_the_frame() -> None:
    reader = SessionReader(RECORDINGS / "dataloader.msgpack")
    row = next(row for row in frame_at(reader, len(reader.marks) - 1).processes if row.samples)
    reader.close()
    assert row.samples[0].line.brief == "loaders.py:36", "the line that gputop explain blames by its samples"
    assert sum(sample.count for sample in row.samples) <= row.sampled


@pytest.mark.slow
def test_from_the_chain_to_the_line_of_its_finding_and_back(train: Line) -> None:
    made = Shown(frame(), replay=True)
    made.explain(explained(finding(line=train)))
    made.press("w")
    assert f"{train.file}:200 in mask()" in made.text(400, 40)
    made.press("s")
    assert "line_200()" in made.text()
    made.press("escape")
    assert isinstance(made.app.screen, WhyPage)


def test_the_verdict_names_the_line(train: Line) -> None:
    made = Shown(frame())
    made.explain(explained(finding(line=train)))
    assert "train.py:200" in "".join(made.text().splitlines()[1:5])


def test_a_file_that_is_newer_than_the_program_is_doubted(train: Line) -> None:
    os.utime(train.file)
    made = Shown(frame(LineRow(train, "cudaMemcpy", 1, 1), wall_ns=fake.WALL), "s", replay=True)
    assert "changed after the program began" in made.text()


def test_where_the_clock_was_set_a_page_of_the_source_says_so(train: Line) -> None:
    os.utime(train.file)
    clock = WallClock(0, 1 << 62)
    made = Shown(frame(LineRow(train, "cudaMemcpy", 1, 1), wall_ns=fake.WALL, clock=clock), "s", replay=True)
    assert "the clock was set meanwhile" in made.text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.py", "no such file"),
        ("folder", "no plain file"),
        ("pipe", "no plain file"),
        ("large.py", "more than 4 MiB"),
        ("<string>", "comes from no file"),
    ],
)
def test_what_cannot_be_shown_is_reported_in_a_sentence(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    path = name if name.startswith("<") else str(tmp_path / name)
    source = read_source(Line(path, 1, "f"), None)
    assert source.lines == ()
    assert said in source.problem


def test_a_live_programs_relative_name_counts_from_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("here()\n")
    monkeypatch.chdir(tmp_path)
    assert read_source(Line("train.py", 1, "f"), os.getpid()).lines[0] == "here()"


def test_old_recordings_say_slow_where_they_said_costly() -> None:
    reader = SessionReader(RECORDINGS / "numpy-sync.msgpack")
    assert reader.header["lines"] == "costly"
    assert frame_at(reader, 10).lines == "slow"
    reader.close()
