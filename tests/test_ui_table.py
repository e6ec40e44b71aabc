"""Which processes are listed and how: filters, the tree, hidden panes; without a terminal."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.engine.frame import Frame, ProcessRow
from gputop.ui.model.filter import FilterError, parse_filter
from gputop.ui.model.hiding import TOGGLED, without
from gputop.ui.model.layout import Needs, plan
from gputop.ui.model.look import plain
from gputop.ui.model.presenter import Presenter
from gputop.ui.model.tree import parents_of, tree_of
from tests import fake_frames as fake

TRAINER, WORKERS = 4242, (4249, 4256)


def family(**changes: object) -> Frame:
    """A trainer on GPU 0 with two loader workers, and another program on GPU 1."""
    made = fake.frame(processes=4, storm=False)
    trainer, first, second, other = made.processes
    workers = [
        replace(
            row, parent_pid=TRAINER, name="pt_data_worker", gpus=(), gpu_memory_bytes=None, calls=(),
            calls_per_second=0.0, top_api="", top_api_ns_per_second=0.0, top_api_p99_ns=0,
        )
        for row in (first, second)
    ]  # fmt: skip
    other = replace(other, user="bob", gpus=(1,), calls=())
    trainer = replace(trainer, calls_per_second=90_000.0)
    return replace(made, processes=(trainer, *workers, other), **changes)  # type: ignore[arg-type]


def presenter_of(frame: Frame, *actions: str) -> Presenter:
    """The screen after some actions."""
    presenter = Presenter("live", ascii_only=False)
    presenter.show(frame)
    for action in actions:
        presenter.act(action)
    return presenter


def pids(presenter: Presenter) -> list[int]:
    """The listed pids from the top."""
    return [row.pid for row in presenter.panes.processes.rows]


def text_of(presenter: Presenter, width: int = 120, height: int = 40) -> str:
    """What the screen says."""
    return "\n".join(plain(line) for line in presenter.paint(width, height))


def listed(frame: Frame, text: str) -> set[int]:
    """The pids that pass a filter."""
    storms = {storm.pid for storm in frame.storms}
    return {row.pid for row in frame.processes if parse_filter(text).passes(row, storms)}


# -- filter ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "passing"),
    [
        ("", {4242, 4249, 4256, 4263}),
        ("  PT_DATA ", set(WORKERS)),
        ("alice pt_data", set(WORKERS)),
        ("4242", {4242}),
        ("gpu:0", {4242}),
        ("gpu:0,1", {4242, 4263}),
        ("user:bob", {4263}),
        ("user:bob gpu:0", set()),
        ("call:memcpy", {4242}),
        ("pid:4249,4256", set(WORKERS)),
        ("name:triton", {4263}),
        ("command:rank", {4242, 4249, 4256, 4263}),
        ("!^42(42|63) ", {4242, 4263}),
        ("!rank [01]", {4242, 4249}),
    ],
)
def test_a_filter_lets_through_what_it_says(text: str, passing: set[int]) -> None:
    assert listed(family(), text) == passing


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense:1", "no field 'nonsense': gpu, user"),
        ("gpu:x", "takes a number"),
        ("gpu:²", "takes a number"),
        ("user:", "needs a value"),
        ("state:asleep", "running, runnable, blocked, exited, storm"),
        ("!(", "no regular expression"),
    ],
)
def test_a_filter_that_makes_no_sense_is_a_sentence(text: str, said: str) -> None:
    with pytest.raises(FilterError, match=said.replace("(", r"\(")):
        parse_filter(text)


def test_a_state_is_that_of_the_threads_that_call_cuda() -> None:
    row = fake.process(0)
    threads = (
        replace(row.threads[0], state="runnable", cuda=True),
        replace(row.threads[1], state="blocked", cuda=False),
    )
    frame = replace(fake.frame(), processes=(replace(row, threads=threads),))
    assert listed(frame, "state:runnable") == {row.pid}
    assert listed(frame, "state:blocked") == set()
    assert listed(frame, "state:storm") == {row.pid}
    gone = replace(frame.processes[0], exited_ns=frame.time_ns)
    frame = replace(frame, processes=(gone,))
    assert listed(frame, "state:exited,running") == {row.pid}
    assert listed(frame, "state:runnable") == set()


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="!:,gpu0(*+[\\ ", max_size=12))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    row = fake.process(0)
    if ":" in text or text.strip().startswith("!"):
        with suppress(FilterError):
            assert parse_filter(text).passes(row, ()) in (True, False)
        return
    searched = f"{row.pid} {row.name} {row.user} {row.command}".lower()
    assert parse_filter(text).passes(row, ()) == all(word.lower() in searched for word in text.split())


def test_a_filter_works_while_it_is_typed_and_escape_takes_it_back() -> None:
    presenter = presenter_of(family(), "filter")
    for char in "gpu:1":
        presenter.prompt_key(char, char)
    assert pids(presenter) == [4263]
    assert "Processes 1 of 4  filter gpu:1 [/]" in text_of(presenter)
    presenter.prompt_key("escape", None)
    assert len(pids(presenter)) == 4


def test_a_wrong_filter_keeps_the_question_open_and_says_why() -> None:
    presenter = presenter_of(family(), "filter")
    presenter.prompt_paste("gpu:x")
    presenter.prompt_key("enter", "\r")
    assert "gpu: takes a number" in text_of(presenter)
    presenter.prompt_key("backspace", None)
    presenter.prompt_key("0", "0")
    presenter.prompt_key("enter", "\r")
    assert presenter.prompt is None
    assert pids(presenter) == [4242]


def test_an_empty_list_says_what_keeps_it_empty_and_escape_lists_all() -> None:
    presenter = presenter_of(family(), "filter")
    presenter.prompt_paste("nobody")
    presenter.prompt_key("enter", "\r")
    assert "None of 4 processes passes: filter nobody." in text_of(presenter)
    presenter.act("back")
    assert len(pids(presenter)) == 4


def test_g_goes_through_the_gpus_and_back_to_all() -> None:
    presenter = presenter_of(family())
    seen = []
    for _ in range(3):
        presenter.act("gpu")
        seen.append(set(pids(presenter)))
    assert seen == [{4242}, {4263}, {4242, 4249, 4256, 4263}]


# -- tree -----------------------------------------------------------------------------------------


def test_workers_fold_under_their_parent_with_sums() -> None:
    frame = family()
    presenter = presenter_of(frame, "tree")
    trainer, *workers = frame.processes[:3]
    shown = presenter.panes.processes.rows[0]
    assert pids(presenter) == [TRAINER, 4263]
    for name in ("voluntary_per_second", "involuntary_per_second", "runnable_percent", "on_cpu_percent"):
        assert getattr(shown, name) == sum(getattr(row, name) for row in (trainer, *workers))
    assert shown.gpu_memory_bytes == trainer.gpu_memory_bytes, "workers of unknown memory add none"
    assert shown.blocked_percent == trainer.blocked_percent, "shares of other threads have no sum"
    assert "+2 python" in text_of(presenter)


def test_a_branch_unfolds_to_the_figures_of_each() -> None:
    frame = family()
    presenter = presenter_of(frame, "tree", "fold")
    assert pids(presenter)[0] == TRAINER
    assert set(pids(presenter)[1:3]) == set(WORKERS)
    assert presenter.panes.processes.rows[0] == frame.processes[0]
    text = text_of(presenter)
    assert "- python" in text
    assert "└ pt_data" in text
    presenter.act("fold")
    assert pids(presenter) == [TRAINER, 4263]


def test_a_branch_keeps_its_place_when_it_unfolds() -> None:
    frame = family()
    other = replace(frame.processes[3], involuntary_per_second=frame.processes[0].involuntary_per_second + 1)
    frame = replace(frame, processes=(*frame.processes[:3], other))
    presenter = presenter_of(frame, "tree")
    presenter.panes.processes.sort_by("involuntary")
    presenter.show(frame)
    assert pids(presenter)[0] == TRAINER, "its workers make it the first"
    presenter.act("fold")
    presenter.panes.processes.resort()
    presenter.show(replace(frame, time_ns=frame.time_ns + 2 * fake.S))
    assert pids(presenter)[0] == TRAINER


def test_the_cursor_goes_to_the_branch_that_folds_around_its_process() -> None:
    presenter = presenter_of(family())
    presenter.panes.processes.select(WORKERS[0])
    presenter.act("tree")
    assert presenter.panes.processes.selected == TRAINER


def test_workers_of_who_passes_the_filter_stay_in_its_branch() -> None:
    presenter = presenter_of(family(), "gpu", "tree")
    assert "+2 python" in text_of(presenter)
    assert pids(presenter) == [TRAINER]


def test_a_storm_of_a_worker_is_seen_at_its_folded_branch() -> None:
    frame = family()
    storm = replace(fake.frame().storms[0], pid=WORKERS[0])
    presenter = presenter_of(replace(frame, storms=(storm,)), "tree")
    line = next(line for line in text_of(presenter).splitlines() if "+2 python" in line)
    assert "▲ storm" in line


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), max_size=12, unique_by=lambda pair: pair[0]),
    st.sets(st.integers(1, 12)),
)
def test_no_process_is_lost_or_told_twice_whatever_the_parents(
    pairs: list[tuple[int, int]], unfolded: set[int]
) -> None:
    # a forged file may hold circles
    rows: list[ProcessRow] = [
        replace(fake.process(0, threads=0, calls=0), pid=pid, parent_pid=parent) for pid, parent in pairs
    ]
    tree = tree_of(rows, unfolded)
    arranged = tree.arranged(row.pid for row in tree.rows)
    assert sorted(arranged) == sorted(row.pid for row in tree.rows)
    hidden = [pid for members in tree.members.values() for pid in members[1:]]
    assert {row.pid for row in tree.rows} | set(hidden) == {row.pid for row in rows}
    assert tree.parents == parents_of(rows)


# -- follow ---------------------------------------------------------------------------------------


def test_who_is_followed_stays_selected_listed_and_in_sight() -> None:
    frame = fake.frame(processes=60, storm=False)
    presenter = presenter_of(frame, "next_pane", "end", "follow")
    followed = presenter.panes.processes.selected
    presenter.act("filter")
    presenter.prompt_paste("nobody")
    presenter.prompt_key("enter", "\r")
    assert pids(presenter) == [followed]
    presenter.act("back")
    text_of(presenter, 80, 24)
    presenter.wheel(10, 8, -200)
    presenter.show(fake.frame(9, processes=60, storm=False))
    text = text_of(presenter, 80, 24)
    assert f"› {followed:>6}" in text
    assert f"following {followed} [f]" in text
    presenter.act("up")
    assert "following" not in text_of(presenter)


def test_when_the_followed_process_has_left_it_is_said() -> None:
    presenter = presenter_of(fake.frame(processes=4, storm=False), "next_pane", "follow")
    followed = presenter.panes.processes.selected
    rows = tuple(row for row in fake.frame(9).processes if row.pid != followed)
    presenter.show(replace(fake.frame(9, storm=False), processes=rows))
    assert f"{followed} " in text_of(presenter).splitlines()[-1]
    assert "was followed: it has ended and left the list" in text_of(presenter)


# -- panes ----------------------------------------------------------------------------------------

NEEDS = st.builds(
    Needs,
    gpu_lines=st.integers(1, 20),
    storms=st.integers(0, 20),
    processes=st.integers(0, 300),
    banner=st.integers(0, 9),
    transport=st.booleans(),
    log=st.booleans(),
    focus=st.sampled_from(["processes", "calls", "threads", "gpus"]),
    detail=st.sampled_from(["calls", "threads"]),
)


@settings(max_examples=150, deadline=None)
@given(st.integers(40, 300), st.integers(10, 80), NEEDS, st.permutations(TOGGLED), st.integers(0, 5))
def test_whatever_is_hidden_the_other_panes_fill_the_screen(
    width: int, height: int, needs: Needs, panes: list[str], count: int
) -> None:
    hidden = panes[:count]
    before = plan(width, height, needs)
    after = without(before, hidden)
    covered: set[tuple[int, int]] = set()
    for placed in after:
        assert placed.width > 0
        assert placed.height > 0
        cells = {
            (x, y)
            for x in range(placed.x, placed.x + placed.width)
            for y in range(placed.y, placed.y + placed.height)
        }
        assert not cells & covered
        assert all(x < width and y < height for x, y in cells)
        covered |= cells
    assert {y for _, y in covered} == set(range(height))
    assert {p for p in before if p.pane in ("header", "footer", "transport", "verdict")} <= set(after)
    left = {placed.pane for placed in after} & set(hidden)
    growable = {placed.pane for placed in before} & {"gpus", "processes", "calls", "threads", "log"}
    assert not left or growable <= set(hidden), "a pane stays only when there is none to take its room"


def test_a_hidden_pane_is_told_and_comes_back() -> None:
    presenter = presenter_of(fake.frame(), "pane_1")
    assert "UTIL" not in text_of(presenter)
    assert "1 pane hidden [F]" in text_of(presenter)
    presenter.act("pane_1")
    assert "UTIL" in text_of(presenter)


def test_the_last_pane_stays() -> None:
    presenter = presenter_of(fake.frame(), "pane_1", "pane_2", "pane_3", "pane_4")
    assert presenter.hidden == {"gpus", "processes", "calls"}
    assert "this is the last pane" in text_of(presenter)
    assert "Threads 8" in text_of(presenter)
    presenter.act("all_panes")
    assert not presenter.hidden


def test_the_keys_never_go_to_a_hidden_pane() -> None:
    presenter = presenter_of(fake.frame(), "next_pane", "open", "pane_3")
    assert presenter.focus == "processes"
    seen = set()
    for _ in range(5):
        presenter.act("next_pane")
        seen.add(presenter.focus)
    assert seen == {"verdict", "processes", "threads", "gpus"}
    for size in ((80, 24), (40, 10)):
        assert "Threads" in text_of(presenter_of(fake.frame(), "pane_3", "pane_2", "pane_1"), *size)


def test_the_pane_that_the_keys_go_to_is_told_by_a_sign() -> None:
    presenter = presenter_of(fake.frame(), "next_pane")
    assert "─›Processes 4" in text_of(presenter)
    assert "─ Calls" in text_of(presenter)
    presenter.act("next_pane")
    assert "─ Processes 4" in text_of(presenter)
    assert "─›Calls" in text_of(presenter)


# -- columns --------------------------------------------------------------------------------------


def test_at_80_columns_vol_gives_way_and_can_still_be_sorted_by() -> None:
    presenter = presenter_of(fake.frame())
    heading = next(line for line in text_of(presenter, 80, 24).splitlines() if "CALL/s" in line)
    assert "VOL/s" not in heading
    assert {"PID", "NAME", "GPU", "TOP", "p99", "INV/s", "RUNQ%", "BLK%", "STATE"} <= set(heading.split())
    assert "VOL/s" in text_of(presenter, 120, 40)
    while presenter.panes.processes.sort_column.key != "voluntary":
        presenter.act("sort_right")
    assert "by VOL/s ▾" in text_of(presenter, 80, 24)
    rates = [row.voluntary_per_second for row in presenter.panes.processes.rows]
    assert rates == sorted(rates, reverse=True)


def test_a_copied_row_has_all_columns_also_those_out_of_sight() -> None:
    presenter = presenter_of(fake.frame(), "next_pane")
    text_of(presenter, 80, 24)
    row = presenter.selected
    assert row is not None
    assert presenter.copied().startswith(f"PID {row.pid}  NAME {row.name}")
    assert f"COMMAND {row.command}" in presenter.copied()
    presenter.act("help")
    text_of(presenter, 80, 24)
    copied = presenter.copied()
    assert "could not be known; never shown as 0" in copied, "the whole page, not what fits the screen"
