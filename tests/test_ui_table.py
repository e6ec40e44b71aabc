"""Which processes are listed and how: filters, the tree, hidden panes; without a terminal."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.engine.frame import Frame, ProcessRow
from gputop.ui.model.listing.filter import FilterError, parse_filter
from gputop.ui.model.listing.tree import parents_of, tree_of
from gputop.ui.model.view import TOGGLED
from gputop.ui.panes.pane import Pane
from gputop.ui.panes.process_pane import Processes
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import Shown

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


def pids(screen: Shown) -> list[int]:
    """The listed pids from the top."""
    return [row.pid for row in screen.view.processes.rows]


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
        ("nonsense:1", "no field 'nonsense': use gpu, user"),
        ("gpu:x", "needs a number"),
        ("gpu:²", "needs a number"),
        ("user:", "needs a value"),
        ("state:asleep", "running, runnable, blocked, exited, storm"),
        ("!(", "not a regular expression"),
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


@pytest.mark.slow
def test_a_filter_works_while_it_is_typed_and_escape_takes_it_back() -> None:
    screen = Shown(family(), "slash")
    for char in "gpu:1":
        screen.type(char)
    assert pids(screen) == [4263]
    assert "Processes 1 of 4  filter gpu:1 [/]" in screen.text()
    screen.press("escape")
    assert len(pids(screen)) == 4


@pytest.mark.slow
def test_a_wrong_filter_keeps_the_question_open_and_says_why() -> None:
    screen = Shown(family(), "slash")
    screen.type("gpu:x")
    screen.press("enter")
    assert "gpu: needs a number" in screen.text()
    screen.press("backspace")
    screen.press("0")
    screen.press("enter")
    assert pids(screen) == [4242]


@pytest.mark.slow
def test_an_empty_list_says_what_keeps_it_empty_and_escape_lists_all() -> None:
    screen = Shown(family(), "slash")
    screen.type("nobody")
    screen.press("enter")
    assert "No process matches filter nobody (4 hidden)." in screen.text()
    screen.press("escape")
    assert len(pids(screen)) == 4


def test_g_goes_through_the_gpus_and_back_to_all() -> None:
    screen = Shown(family())
    seen = []
    for _ in range(3):
        screen.press("g")
        seen.append(set(pids(screen)))
    assert seen == [{4242}, {4263}, {4242, 4249, 4256, 4263}]


# -- tree -----------------------------------------------------------------------------------------


def test_workers_fold_under_their_parent_with_sums() -> None:
    frame = family()
    screen = Shown(frame, "e")
    trainer, *workers = frame.processes[:3]
    shown = screen.view.processes.rows[0]
    assert pids(screen) == [TRAINER, 4263]
    for name in ("voluntary_per_second", "involuntary_per_second", "runnable_percent", "on_cpu_percent"):
        assert getattr(shown, name) == sum(getattr(row, name) for row in (trainer, *workers))
    assert shown.gpu_memory_bytes == trainer.gpu_memory_bytes, "workers of unknown memory add none"
    assert shown.blocked_percent == trainer.blocked_percent, "shares of other threads have no sum"
    assert "+2 python" in screen.text()


def test_a_branch_unfolds_to_the_figures_of_each() -> None:
    frame = family()
    screen = Shown(frame, "e", "E")
    assert pids(screen)[0] == TRAINER
    assert set(pids(screen)[1:3]) == set(WORKERS)
    assert screen.view.processes.rows[0] == frame.processes[0]
    text = screen.text()
    assert "- python" in text
    assert "└ pt_data" in text
    screen.press("E")
    assert pids(screen) == [TRAINER, 4263]


def test_a_branch_keeps_its_place_when_it_unfolds() -> None:
    frame = family()
    other = replace(frame.processes[3], involuntary_per_second=frame.processes[0].involuntary_per_second + 1)
    frame = replace(frame, processes=(*frame.processes[:3], other))
    screen = Shown(frame, "e")
    screen.view.processes.sort_by("involuntary")
    screen.show(frame)
    assert pids(screen)[0] == TRAINER, "its workers make it the first"
    screen.press("E")
    screen.view.processes.resort()
    screen.show(replace(frame, time_ns=frame.time_ns + 2 * fake.S))
    assert pids(screen)[0] == TRAINER


def test_the_cursor_goes_to_the_branch_that_folds_around_its_process() -> None:
    screen = Shown(family())
    screen.view.processes.select(WORKERS[0])
    screen.press("e")
    assert screen.view.processes.selected == TRAINER


def test_workers_of_who_passes_the_filter_stay_in_its_branch() -> None:
    screen = Shown(family(), "g", "e")
    assert "+2 python" in screen.text()
    assert pids(screen) == [TRAINER]


def test_a_storm_of_a_worker_is_seen_at_its_folded_branch() -> None:
    frame = family()
    storm = replace(fake.frame().storms[0], pid=WORKERS[0])
    screen = Shown(replace(frame, storms=(storm,)), "e")
    line = next(line for line in screen.text().splitlines() if "+2 python" in line)
    assert "▲ storm" in line


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), max_size=12, unique_by=lambda pair: pair[0]),
    st.sets(st.integers(1, 12)),
)
def test_no_process_is_lost_or_reported_twice_whatever_the_parents(
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


@pytest.mark.slow
def test_who_is_followed_stays_selected_listed_and_in_sight() -> None:
    frame = fake.frame(processes=60, storm=False)
    screen = Shown(frame, "tab", "end", "f")
    followed = screen.view.processes.selected
    screen.press("slash")
    screen.type("nobody")
    screen.press("enter")
    assert pids(screen) == [followed]
    screen.press("escape")
    screen.text(80, 24)
    screen.app.screen.query_one(Processes).scroll_to(y=0, animate=False)
    screen.show(fake.frame(9, processes=60, storm=False))
    text = screen.text(80, 24)
    assert f"› {followed:>6}" in text
    assert f"following {followed} [f]" in text
    screen.press("up")
    assert "following" not in screen.text()


def test_when_the_followed_process_has_left_it_is_reported() -> None:
    screen = Shown(fake.frame(processes=4, storm=False), "tab", "f")
    followed = screen.view.processes.selected
    rows = tuple(row for row in fake.frame(9).processes if row.pid != followed)
    screen.show(replace(fake.frame(9, storm=False), processes=rows))
    assert screen.said.startswith(f"the followed process {followed} ")
    assert screen.said.endswith("has ended")


# -- panes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(120, 40), (40, 12), (80, 24), (170, 40), (200, 50)], ids=str)
@pytest.mark.slow
@pytest.mark.mainly("(80, 24)", "(200, 50)")
def test_whatever_is_hidden_the_other_panes_fill_the_screen(size: tuple[int, int]) -> None:
    screen, hidden = Shown(fake.frame(processes=3), size=size), set[int]()
    for wanted in ({0}, {0, 1}, {0, 1, 4}, {1}, {1, 2}, {2}, {2, 3}, {3}, {0, 2, 3}):
        screen.press(*(str(place + 1) for place in sorted(hidden - wanted) + sorted(wanted - hidden)))
        hidden = wanted
        main = screen.app.screen
        shown = {pane.id for pane in main.query(Pane) if pane.display and pane.region.area and pane.id}
        assert not shown & {TOGGLED[place] for place in hidden}
        body = main.query_one("#body").region
        panes = [child.region for child in main.query_one("#body").children if child.display]
        assert sum(pane.area for pane in panes) >= body.area, f"nothing is left blank without {hidden}"
        assert body.bottom <= size[1] - 1


def test_a_hidden_pane_is_reported_and_comes_back() -> None:
    screen = Shown(fake.frame(), "1")
    assert "UTIL" not in screen.text()
    assert "1 pane hidden [F]" in screen.text()
    screen.press("1")
    assert "UTIL" in screen.text()


def test_the_last_pane_stays() -> None:
    screen = Shown(fake.frame(), "1", "2", "3", "4")
    assert screen.view.hidden == {"gpus", "processes", "calls"}
    assert screen.said == "the last pane cannot be hidden"
    assert "Threads  of 4242 python  8 threads" in screen.text()
    screen.press("F")
    assert not screen.view.hidden


@pytest.mark.slow
def test_the_keys_never_go_to_a_hidden_pane() -> None:
    screen = Shown(fake.frame(), "tab", "tab", "enter", "3")
    screen.explain(why.explained(why.finding()))
    seen = set()
    for _ in range(6):
        screen.press("tab")
        seen.add(screen.app.focused.id if screen.app.focused else None)
    assert seen == {None, "gpus", "processes", "threads", "timeline"}, "the verdict has no name"
    for size in ((80, 24), (40, 10)):
        assert "Threads" in Shown(fake.frame(), "3", "2", "1", size=size).text()


def test_the_pane_that_the_keys_go_to_is_reported_by_a_sign() -> None:
    screen = Shown(fake.frame(), "tab")
    assert "›GPUs 2" in screen.text()
    assert "› Processes" not in screen.text()
    screen.press("tab")
    assert "›Processes 4" in screen.text()
    assert "›GPUs" not in screen.text()


# -- columns --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_at_80_columns_vol_gives_way_and_can_still_be_sorted_by() -> None:
    screen = Shown(fake.frame())
    heading = next(line for line in screen.text(80, 24).splitlines() if "CALLS/s" in line)
    assert "VOL/s" not in heading
    assert {"PID", "NAME", "GPU", "TOP", "SM%", "p99", "PREEMPT/s", "RUNQ%", "STATE"} <= set(
        heading.replace("▾", " ").split()
    )
    assert "VOL/s" in screen.text(200, 50)
    while screen.view.processes.sort_column.key != "voluntary":
        screen.press("full_stop")
    assert "by VOL/s ▾" in screen.text(80, 24)
    rates = [row.voluntary_per_second for row in screen.view.processes.rows]
    assert rates == sorted(rates, reverse=True)


def test_a_copied_row_has_all_columns_also_those_out_of_sight() -> None:
    screen = Shown(fake.frame(), "down", "y", size=(80, 24))
    row = screen.view.selected
    assert row is not None
    assert screen.app.clipboard.startswith(f"PID {row.pid}  NAME {row.name}")
    assert f"COMMAND {row.command}" in screen.app.clipboard
    screen.press("question_mark", "y")
    assert "unknown; never shown as 0" in screen.app.clipboard, "the whole page, not what fits"
