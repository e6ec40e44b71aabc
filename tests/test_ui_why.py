"""The WHY panel: idle ranges, the two first causes and the fix, in one glance from 60 columns on."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gputop.analysis.answer.report import DiagnosisKind, Gain, GpuSpan, Range, Report
from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.format import brief
from gputop.playback.feed import Explained
from gputop.ui.model.answer.chain_page import ChainPage
from gputop.ui.model.answer.verdict import verdict_line
from gputop.ui.model.answer.why import GpuIdle, Why, why_of
from gputop.ui.model.answer.whylines import heading, idle_bar, range_text, why_lines
from gputop.ui.model.look import ASCII, UNICODE, Glyphs, line_width, plain
from tests import each_recording
from tests import fake_frames as fake
from tests import fake_reports as made
from tests import told_recordings as recordings

LOUD = {"alert", "host", "warn"}
# what is wrong with each program: cause, class, place, the words of the fix
STORIES = {
    "dataloader": ("C12", "input-bound", "loaders.py:36", "fetch whole batches"),
    "dataloader-direct": (
        "C12",
        "input-bound",
        "loaders.py:40",
        "prepare the next one in another process",
    ),
    "dataloader-workers": ("C08", "input-bound", "loaders.py:57", "fetch whole batches"),
    "numpy-sync": ("C02", "sync-bound", "transfers.py:29", "do it in a kernel"),
    "redundant-to-device": ("C05", "copy-bound", "transfers.py:60", "create the data there"),
}
HEALTHY = ("healthy", "dataloader-fixed", "numpy-sync-fixed", "redundant-to-device-fixed")
LINE = SourceLine("/home/me/train.py", 88, "main")


def recorded(name: str) -> tuple[Report, Why]:
    """What is reported near the end of a recording."""
    explained = recordings.explained(name)
    assert explained.report is not None
    return explained.report, why_of(explained, recordings.frame(name))


def told(explained: Explained, age_ms: int = 400, **changes: object) -> Why:
    """The panel's data, so long after the explanation."""
    frame = replace(fake.frame(), time_ns=explained.end_ns + age_ms * made.MS, **changes)  # type: ignore[arg-type]
    return why_of(explained, frame)


def text(why: Why, width: int = 120, height: int = 5, glyphs: Glyphs = UNICODE) -> list[str]:
    return [plain(line) for line in why_lines(why, width, height, glyphs)]


def many(count: int, proved_ms: int = 4_800) -> Report:
    """GPUs of which each is idle for 5 % longer than the one before."""
    accounts = [made.account(proved_ms + 500 * index) for index in range(count)]
    gpus = tuple(GpuSpan(f"GPU {n}", 10 * made.S, one.idle, one) for n, one in enumerate(accounts))
    return made.report(made.finding(), gpus=gpus, span_ns=count * 10 * made.S)


# -- what is reported ---------------------------------------------------------------------------------------


def test_the_idle_range_goes_from_what_is_proved_to_what_is_estimated_and_its_error() -> None:
    account = made.account(4_700, 2_400)  # of 10 s, give or take 0.1 s
    why = told(made.explained(made.finding(), told=account))
    assert why.gpus == (GpuIdle("GPU 0", 0.47, 0.25, 0.0, unestimated=False, about=0.71),)
    assert "GPU 0 idle ~71 % (47–72 %)" in text(why)[1]
    assert "GPU 0 idle ~71 % (47-72 %)" in text(why, glyphs=ASCII)[1]
    exact = replace(account, error_ns=0)
    assert "GPU 0 idle 47–71 %" in text(told(made.explained(made.finding(), told=exact)))[1]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_a_range_that_leaves_all_open_stands_beside_its_estimate(count: int) -> None:
    """Attached late nothing is proved: ``0–81 %`` was all that several GPUs had, with an exact estimate."""
    account = made.account(0, 8_100)
    gpus = tuple(GpuSpan(f"GPU {n}", 10 * made.S, account.idle, account) for n in range(count))
    report = made.report(made.finding(), gpus=gpus, span_ns=count * 10 * made.S)
    why = told(replace(made.explained(made.finding()), report=report))
    first = text(why)[1]
    assert ("GPU 0 idle ~81 % (0–82 %)" if count < 3 else "GPU0 ~81 %") in first, first
    assert "0–81" not in first


def test_an_estimates_error_never_leads_beyond_what_can_be_proved() -> None:
    account = made.account(4_700, 2_400, error_ns=9 * made.S, bounds=Range(4_700 * made.MS, 8_000 * made.MS))
    assert told(made.explained(told=account)).gpus[0].high == pytest.approx(0.8)


def test_the_bar_is_solid_where_idleness_is_proved_hatched_where_it_is_not_and_blank_where_busy() -> None:
    bar = idle_bar(GpuIdle("GPU 0", 0.25, 0.125, 0.125, unestimated=False), 42, UNICODE)
    assert plain(bar) == "▐" + "█" * 10 + "▒" * 5 + "░" * 5 + " " * 20 + "▌"
    assert plain(idle_bar(GpuIdle("GPU 0", 0.5, 0.0, 0.5, unestimated=False), 10, ASCII)) == "[####::::]"


@pytest.mark.parametrize("width", [3, 7, 20, 53])
@pytest.mark.parametrize("parts", [(0, 0, 0), (1, 0, 0), (0.33, 0.33, 0.34), (0.005, 0.99, 0.005)])
def test_a_bar_has_its_width_whatever_its_parts(width: int, parts: tuple[float, float, float]) -> None:
    assert line_width(idle_bar(GpuIdle("GPU 0", *parts, unestimated=False), width, UNICODE)) == width


def test_it_cannot_be_told_only_where_no_source_tells_of_most_of_the_time() -> None:
    assert told(made.explained(told=made.account(300, unknown_ms=5_100))).gpus[0].unestimated
    assert not told(made.explained(told=made.account(300, unknown_ms=4_900))).gpus[0].unestimated
    known = made.account(300, unknown_ms=9_000, source="nvml", error_ns=0)
    assert not told(made.explained(told=known)).gpus[0].unestimated
    why = told(made.explained(told=made.account(300, unknown_ms=9_000)))
    assert "idle unknown (3–93 %)" in text(why)[1]
    found = told(made.explained(made.finding(), told=made.account(300, unknown_ms=9_000)))
    assert "idle 3–93 %" in text(found)[1], "never above a cause that is named"


def test_a_loss_that_is_a_range_is_shown_as_one_in_percent_and_in_a_step() -> None:
    loss = Range(1_000 * made.MS, 4_000 * made.MS, 3_000 * made.MS)
    finding = made.finding(loss=loss, per_step_ns=4_200_000, line=LINE)  # of the middle, 3 s
    line = text(told(made.explained(finding)))[2]
    assert "1 10–30 %" in line
    assert "1.4–4.2 of 14.0 ms/step" in line
    assert line.rstrip().endswith("train.py:88")


def test_a_loss_is_not_reported_by_another_processs_step() -> None:
    why = told(made.explained(made.finding(pid=77)))
    assert why.causes[0].step_ns is None
    assert "4.5 ms/step" in text(why)[2]
    assert why.fix is not None
    assert not why.fix.per_step


def test_findings_that_read_alike_are_distinguished_by_their_processes() -> None:
    one = made.finding(line=SourceLine("/home/user/train.py", 7, "main"))
    two, other = replace(one, pid=one.pid + 1), made.finding("C13", 100)
    lines = [cause.line for cause in told(made.explained(one, two, other)).causes]
    assert lines == [f"train.py:7 ({one.pid})", f"train.py:7 ({one.pid + 1})"]
    alone = told(made.explained(one, other)).causes[0]
    assert alone.line == "train.py:7"


def test_the_cause_of_the_class_comes_first_and_the_fix_is_its() -> None:
    other, lead = made.finding("C04", 3_000), made.finding("C12", 900, advice=("it is slow: make it fast",))
    why = told(made.explained(other, lead, made.finding("C13"), diagnosis=made.diagnosis(lead=1)))
    assert [cause.number for cause in why.causes] == ["C12", "C04"]
    assert why.more == 1
    assert why.fix is not None
    assert why.fix.text == "make it fast"


def test_the_fix_comes_first_and_what_it_rests_on_stands_below_where_there_is_room() -> None:
    why = told(made.explained(made.finding(advice=("twenty copies a step: make them one",))))
    assert text(why, 120)[-2].startswith(" FIX 1 make them one  ")
    assert text(why, 120)[-1].rstrip() == "       twenty copies a step"
    assert text(why, 80, 3)[-1].startswith(" FIX 1 make them one  ")


def test_a_long_fix_goes_on_in_a_second_line_and_else_ends_with_a_whole_clause() -> None:
    advice = "pin the batches once before the loop, copy them beside the work, or read them from a map (mmap)"
    finding = made.finding(advice=(advice,))
    one, two = told(made.explained(finding)), told(made.explained(finding, made.finding("C13")))
    whole = " ".join(" ".join(text(one, 100)[-2:]).replace("saves up to 4.6 ms/step", "").split())
    assert whole == f"FIX 1 {advice}"
    assert text(two, 100)[-1].startswith(
        " FIX 1 pin the batches once before the loop, copy them beside the work …"
    )
    assert text(two, 64)[-1].startswith(" FIX 1 pin the batches once before th…")


def test_what_a_fix_saves_is_reported_a_step_and_is_never_more_than_the_step() -> None:
    why = told(made.explained(made.finding(gain=Gain(2_520 * made.MS))))  # 700 steps of 14 ms
    assert why.fix is not None
    assert why.fix.saves_ns == 3_600_000
    assert " FIX 1 " in text(why)[3]
    assert text(why)[3].rstrip().endswith("saves up to 3.6 ms/step")
    whole = told(made.explained(made.finding(gain=Gain(99 * made.S)))).fix
    assert whole is not None
    assert whole.saves_ns == 14 * made.MS


def test_how_old_it_is_stands_first_and_what_is_old_is_drawn_as_old() -> None:
    finding = made.finding()
    fresh, old = told(made.explained(finding), 400), told(made.explained(finding), 2_100)
    assert plain(heading(fresh, UNICODE)).startswith("WHY is the GPU idle?  last 10 s, 0.4 s old")
    assert plain(heading(old, UNICODE)).startswith("WHY is the GPU idle?  last 10 s, 2.1 s old")
    assert not fresh.old
    assert old.old
    tokens = {token for line in why_lines(old, 120, 5, UNICODE)[1:] for _, token in line}
    assert not tokens & {"alert", "host", "value"}
    assert {token for line in why_lines(fresh, 120, 5, UNICODE)[1:] for _, token in line} & {"alert", "host"}


def test_a_fix_that_is_older_than_the_figures_says_so() -> None:
    for age_ns, older in ((1_900 * made.MS, ""), (5 * made.S, " (from 5 s ago)")):
        why = told(replace(made.explained(made.finding()), detail_age_ns=age_ns))
        line = why_lines(why, 120, 5, UNICODE)[-1]
        assert plain(line).rstrip().endswith(f"saves up to 4.6 ms/step{older}")
        assert ("unsure" in {token for _, token in line}) == bool(older)


def test_on_a_small_terminal_the_first_cause_has_the_room_of_those_that_are_not_shown() -> None:
    """What it costs a step gave way to the line of a second cause that three lines do not show."""
    starved = made.finding(
        "C13",
        5_300,
        title="the submitting thread is starved of CPU",
        loss=Range(30 * made.MS, 5_300 * made.MS, 5_300 * made.MS),
        advice=("keep others off its CPU with taskset or nice",),
        per_step_ns=2_600_000,
    )
    late = made.finding("C15", 3_300, line=replace(LINE, file="/a/stories_of_loops.py"))
    why = told(replace(made.explained(starved, late), detail_age_ns=3 * made.S))
    _, cause, fix = text(why, 80, 3)
    assert cause.rstrip().endswith("is starved of CPU C13  0–2.6 of 14.0 ms/step")
    assert "keep others off its CPU with taskset or nice  " in fix
    assert fix.endswith("ms/step ")


def test_an_explanation_of_a_later_time_is_old_too() -> None:
    why = told(made.explained(made.finding()), -5_000)
    assert why.old
    assert why.when == "10 s window ending 5.00s after this moment"


# -- where there is nothing to tell ---------------------------------------------------------------------


def test_without_ebpf_one_sentence_says_so_and_what_to_type() -> None:
    lines = text(told(made.explained(made.finding()), calls_observed=False))
    assert len(lines) == 1
    assert "without eBPF" in lines[0]
    assert "gputop check" in lines[0]


def test_who_uses_no_cuda_is_reported_to_use_none() -> None:
    quiet = fake.process(0, calls=0, name="bash", pid=99)
    one = why_of(Explained(), replace(fake.frame(), processes=(quiet,)))
    assert "bash (99) has made no CUDA call yet" in text(one)[0]
    two = why_of(Explained(), replace(fake.frame(), processes=(quiet, replace(quiet, pid=98))))
    assert "none of 2 processes has made a CUDA call yet" in text(two)[0]
    nobody = why_of(Explained(), replace(fake.frame(), processes=()))
    assert "no process has made a CUDA call yet" in text(nobody)[0]


@pytest.mark.parametrize("report", [None, made.report(gpus=(), span_ns=0)])
def test_no_calls_is_never_reported_beside_calls(report: Report | None) -> None:
    why = why_of(Explained(report, 100 * made.S), fake.frame())
    assert "too few CUDA calls so far" in text(why)[0]


def test_why_the_explanation_stopped_is_reported() -> None:
    assert (
        "events come faster"
        in text(told(Explained(problem="events come faster than it can process them")))[0]
    )


def test_a_first_look_is_not_reported_as_the_explanation() -> None:
    report = made.report(made.finding())
    first = told(Explained(report, 100 * made.S, first_look=True))
    assert first.old
    assert "first look at 10 s, still reading" in text(first)[0]
    assert "first look" not in text(told(Explained(report, 100 * made.S)))[0]


# -- how it is laid out ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", each_recording.NAMES)
def test_every_line_has_the_width_of_the_panel(name: str) -> None:
    why = recorded(name)[1]
    for width in range(60, 251, 5):
        for height in range(1, 9):
            for titled in (True, False):
                lines = why_lines(why, width, height, UNICODE, titled=titled)
                assert len(lines) <= height
                assert {line_width(line) for line in lines} == {width}


@pytest.mark.parametrize("count", [1, 2, 3, 8, 16])
def test_many_gpus_have_their_bars_and_those_without_room_are_counted(count: int) -> None:
    why = told(made.explained(made.finding(), gpus=many(count).gpus))
    for width in (60, 80, 120, 200):
        for height in (3, 5, 9):
            lines = why_lines(why, width, height, UNICODE)
            assert {line_width(line) for line in lines} == {width}
            drawn = "".join(map(plain, lines))
            hidden = int(drawn.partition(" +")[2].split()[0]) if " +" in drawn else 0
            assert len(re.findall(r"GPU ?\d+ ", drawn)) + hidden == count
            assert drawn.count("▐") in (0, count), "bars of some would hide the figures of others"
    assert all("GPUs" not in line for line in text(why, 200, 9))


@pytest.mark.parametrize(("width", "figures"), [(80, 3), (92, 4), (120, 8), (250, 8)])
def test_figures_of_all_gpus_come_before_bars_of_a_few(width: int, figures: int) -> None:
    """At 80 columns one bar stood where four figures fit, at 120 four bars and ``+4 GPUs``."""
    findings = made.finding(), made.finding("C30")
    why = told(made.explained(*findings, gpus=many(8).gpus))
    drawn = " ".join(text(why, width, 3 if width < 100 else 5)[: 1 if width < 100 else 3])
    assert len(re.findall(r"GPU\d [\d–]+ %", drawn)) == figures
    assert ("▐" in drawn) == (width == 250)
    assert f"+{8 - figures} GPUs" in drawn or figures == 8
    busy = [replace(gpu, proved=0.0, estimated=0.0, unknown=0.0, about=None) for gpu in why.gpus[:5]]
    short = replace(why, gpus=(*busy, *why.gpus[5:]))
    assert all(f"GPU{n} " in text(short, 92, 3)[0] for n in (5, 6, 7))


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("doubts", [(), ("NVML disagrees",), ("NVML disagrees", "lost 12")])
def test_a_doubt_never_takes_the_place_of_the_idle_time(count: int, doubts: tuple[str, ...]) -> None:
    """At 80 columns ``NVML disagrees`` left no word of how idle the GPU was."""
    why = replace(told(made.explained(made.finding(), gpus=many(count).gpus)), doubts=doubts)
    for width in (72, 80, 90):
        first = text(replace(why, kind="input-bound"), width, 3)[0]
        assert len(first) == width
        assert re.search(r"\d+ %", first.partition("input-bound")[2]), first


def test_gpus_of_unknown_number_have_short_names_beside_others() -> None:
    report = many(4)
    spans = [replace(gpu, label=f"an unknown device of process {23_240 + n}") if n > 1 else gpu
             for n, gpu in enumerate(report.gpus)]  # fmt: skip
    why = told(made.explained(made.finding(), gpus=tuple(spans)))
    drawn = " ".join(text(why, 118, 5))
    assert all(name in drawn for name in ("GPU0", "GPU1", "GPU of 23242", "GPU of 23243"))
    assert "GPUs" not in drawn


def test_of_gpus_without_room_those_that_are_idle_most_are_shown() -> None:
    lines = text(told(made.explained(made.finding(), gpus=many(12, 2_000).gpus)), 60, 5)[1:3]
    assert "GPU11 75–76 %" in lines[1]
    assert lines[1].rstrip().endswith("+6 GPUs")
    assert all(" 0 48" not in line for line in lines)


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize(("width", "height"), [(80, 3), (120, 5), (200, 5)])
def test_one_glance_names_class_cause_line_and_fix(name: str, width: int, height: int) -> None:
    cause, kind, place, fix = STORIES[name]
    lines = text(recorded(name)[1], width, height)
    assert all("unknown" not in line for line in lines)
    assert kind in lines[0]
    assert "idle" in lines[0] + lines[1]
    first = next(line for line in lines if line.startswith(" 1 "))
    assert cause in first
    assert place in first
    told = next(line for line in lines if line.startswith(" FIX 1 "))
    assert fix in told
    assert "saves up to" in told


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_has_two_calm_lines(name: str) -> None:
    lines = why_lines(recorded(name)[1], 120, 5, UNICODE)
    assert len(lines) == 2
    assert "compute-bound" in plain(lines[0])
    assert "a kernel ran for about" in plain(lines[1])
    assert not LOUD & {token for line in lines for _, token in line}


def test_without_unicode_the_panel_says_the_same_in_ascii() -> None:
    for name in (*STORIES, *HEALTHY):
        assert all(line.isascii() for line in text(recorded(name)[1], 100, 5, ASCII))
    assert range_text(0.47, 0.72, ASCII) == "47-72 %"


def test_names_of_others_are_escaped() -> None:
    finding = made.finding(line=SourceLine("/x/\x1b[31m.py", 3, "f"), title="\x1b[2J")
    assert all("\x1b" not in line for line in text(told(made.explained(finding))))


# -- held against what the fixes really won -------------------------------------------------------------


@pytest.mark.parametrize("name", ["dataloader", "numpy-sync", "redundant-to-device"])
def test_what_the_fix_saved_is_no_more_than_what_it_was_reported_to_save_at_most(name: str) -> None:
    report, why = recorded(name)
    fixed, _ = recorded(f"{name}-fixed")
    assert why.fix is not None
    assert report.steps is not None
    assert fixed.steps is not None
    saved = report.steps.usual_ns - fixed.steps.usual_ns
    assert 0 < saved <= why.fix.saves_ns <= report.steps.usual_ns


def test_a_frame_says_how_old_the_explanation_is_in_a_replay_too() -> None:
    name = "numpy-sync"
    why = why_of(recordings.explained(name), recordings.frame(name, later=2))
    marks, place = recordings.reader(name).marks, recordings.place(name)
    seconds = (int(marks[place + 2]) - int(marks[place])) / 1e9
    assert why.when.endswith(f", {seconds:.1f} s old")


def test_of_a_long_file_name_the_line_is_not_cut() -> None:
    """The name is: with the line alone one finds the place."""
    line = SourceLine("/home/me/a_name_of_more_than_thirty_letters.py", 1234, "main")
    explained = made.explained(replace(made.finding(), line=line, title="sleeps in the loop"))
    rows = text(told(explained), 80, 3)
    assert "a_name_of_more_than_th…:1234" in rows[1]
    assert all(len(row) == 80 for row in rows)


def test_a_long_sentence_about_a_gpu_without_a_fault_goes_on_in_the_next_line() -> None:
    """At 80 columns beside the GPU there is room for a third of it."""
    said = (
        "thread python (10734) of its process sends no work, it sleeps at 22_queue_and_sleep.py:14 in "
        "client(); accounts for 77 % of the time, waiting at 22_queue_and_sleep.py:17 in worker()"
    )
    asked = made.diagnosis(DiagnosisKind.NO_REQUESTS, "no work requested", lead=None, evidence=(said,))
    why = told(made.explained(diagnosis=asked))
    for height in (3, 5):
        rows = text(why, 80, height)
        assert all(len(row) <= 80 for row in rows)
        shown = " ".join(" ".join(rows).split())
        assert "it sleeps at 22_queue_and_sleep.py:14 in client(); accounts for 77 %" in shown
        assert "idle" in shown


def test_a_title_without_room_loses_its_subject_before_its_words() -> None:
    title = "the submitting thread waits for the disk: /data/checkpoint"
    assert brief(title, 60) == title
    assert brief(title, 30) == "waits for the disk: /data/checkpoint"
    assert brief("the submitting thread is starved of CPU (C13)", 20) == "starved of CPU"
    assert brief(title, 0) == title


def test_without_a_line_the_process_stands_for_it_and_the_list_of_findings_names_each() -> None:
    one = made.finding()
    two = replace(one, pid=one.pid + 1)
    explained = made.explained(one, two)
    assert [cause.line for cause in told(explained).causes] == [f"pid {one.pid}", f"pid {one.pid + 1}"]
    page = ChainPage()
    page.show(explained)
    rows = [plain(line) for line in page.lines(60, UNICODE, replay=True)]
    assert any(f"({one.pid}) C02" in row for row in rows)
    assert any(f"({one.pid + 1}) C02" in row for row in rows)


def test_the_one_line_answer_never_leaves_its_cause_out() -> None:
    shown = plain(verdict_line(told(made.explained(made.finding())), 40, UNICODE, focused=False))
    assert ":  (" not in shown
    assert "C02 proved)" in shown


def test_figures_of_eleven_findings_stand_under_each_other() -> None:
    findings = [made.finding(f"C{number:02}", 900 - number) for number in range(1, 12)]
    page = ChainPage()
    page.show(made.explained(*findings))
    rows = [
        line
        for line in map(plain, page.lines(120, UNICODE, replay=False))
        if re.search(r"C\d\d proved", line)
    ]
    assert len(rows) == 11
    assert len({re.search(r"C\d\d proved", row).start() for row in rows}) == 1  # type: ignore[union-attr]
