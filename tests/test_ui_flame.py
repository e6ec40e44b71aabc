"""The flame graph of lines: exact sums, cells within their caller's, own code before libraries, zoom."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gputop.engine.calls.linesums import MOST_STACKS, stack_rows
from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.engine.facts import Facts
from gputop.engine.frame import OFF_CPU, UNPLACED, ProcessRow, StackRow
from gputop.ui.model.look import ASCII, UNICODE, line_width, plain
from gputop.ui.model.process.flame import Flame, flame, move, node_text
from gputop.ui.model.process.flametree import OTHERS, Node, Path, start, tree_of, walk
from probes import api
from probes.source import APIS, FRAMES, Sample
from tests import fake_frames as fake
from tests import told_recordings as recordings

MAIN, LOAD = SourceLine("/home/me/train.py", 88, "main"), SourceLine("/home/me/train.py", 40, "load")
TORCH = SourceLine("/usr/lib/python3.11/site-packages/torch/functional.py", 7, "cat")
DEEP = SourceLine("/usr/lib/python3.11/site-packages/torch/_C.py", 9, "call")
NATIVE, MISSING = SourceLine("/usr/lib/libffi.so.8", 0, "ffi_call+0x41"), SourceLine("", 0, "…")
SYNC, COPY = "cudaStreamSynchronize", "cudaMemcpyAsync"
CALLS = tuple(row.name for row in api.BY_OP[:4])


def process(*stacks: StackRow) -> ProcessRow:
    return replace(fake.process(0, calls=0), name="python", stacks=stacks)


def usual() -> Node:
    """600 ns in a sync below a library, 300 ns off the CPU in own code, 100 ns of unknown stacks."""
    return tree_of(
        process(
            StackRow((NATIVE, MISSING, DEEP, TORCH, MAIN), SYNC, 6, 600),
            StackRow((LOAD, MAIN), OFF_CPU, 3, 300),
            StackRow((UNPLACED,), COPY, 1, 100),
        )
    )


def names(tree: Node, depth: int = 0) -> list[str]:
    """The tree as an outline."""
    lines = [f"{'  ' * depth}{tree.name} {tree.ns}"]
    return lines + [line for child in tree.ordered() for line in names(child, depth + 1)]


def random_process(seed: int) -> ProcessRow:
    """Stacks of all kinds, some of them the same, some without frames."""
    chance = random.Random(seed)
    lines = [SourceLine(f"/home/me/{name}.py", line, name) for name in "abc" for line in (1, 2)]
    lines += [TORCH, DEEP, NATIVE, MISSING]
    stacks = [
        StackRow(
            tuple(chance.choice(lines) for _ in range(chance.randrange(0, 9))),
            chance.choice([SYNC, COPY, OFF_CPU]),
            chance.randrange(1, 50),
            chance.choice([0, 1, 7, chance.randrange(10**9)]),
        )
        for _ in range(60)
    ]
    return process(*stacks)


# -- the tree -----------------------------------------------------------------------------------------


def test_stacks_are_merged_from_the_outermost_frame_and_libraries_are_folded() -> None:
    assert names(usual()) == [
        "python 1000",
        "  train.py:88 main() 900",
        "    train.py:40 load() 300",
        f"      {OFF_CPU} 300",
        "    functional.py:7 cat() +3 600",
        f"      {SYNC} 600",
        "  stack not known 100",
        f"    {COPY} 100",
    ]


def test_own_code_comes_before_libraries_whatever_takes_longer() -> None:
    main = usual().children["train.py:88 main()"]
    assert [child.kind for child in main.ordered()] == ["own", "folded"]


def test_calls_and_waits_can_be_distinguished() -> None:
    row = process(StackRow((MAIN,), SYNC, 1, 600), StackRow((MAIN,), OFF_CPU, 2, 300))
    assert (tree_of(row, "calls").ns, tree_of(row, "waits").ns, tree_of(row).ns) == (600, 300, 900)
    assert tree_of(row, "waits").count == 2


def test_children_sum_up_to_their_parent_to_the_nanosecond() -> None:
    for seed in range(12):
        row = random_process(seed)
        tree = tree_of(row)
        assert tree.ns == sum(stack.sum_ns for stack in row.stacks)
        assert tree.count == sum(stack.count for stack in row.stacks)
        for _path, node in walk(tree):
            if node.children:
                assert sum(child.ns for child in node.children.values()) == node.ns
                assert sum(child.count for child in node.children.values()) == node.count


@pytest.mark.parametrize("name", recordings.NAMES)
def test_in_a_recording_the_tree_holds_the_time_of_all_lines_and_waits(name: str) -> None:
    for row in recordings.frame(name).processes:
        if not row.unknown_lines and not row.unknown_waits:
            assert tree_of(row, "calls").ns == sum(line.sum_ns for line in row.lines)
            assert tree_of(row, "waits").ns == sum(wait.sum_ns for wait in row.waits)


def test_of_too_many_stacks_the_longest_have_rows_and_the_others_a_sum() -> None:
    facts, count = Facts(), MOST_STACKS + 30
    facts.consume(Sample(APIS, 0, {"rows": [[name, "runtime", ""] for name in CALLS]}))
    stacks = [1 << 62 | 4 * (number + 1) for number in range(count)]
    frames = [[["/home/me/a.py", number + 1, "f"]] for number in range(count)]
    facts.consume(Sample(FRAMES, 0, {"pid": [5] * count, "stack": stacks, "frames": frames}))
    sums = {(5, number % 2, stack): (1, 1_000 + number) for number, stack in enumerate(stacks)}
    rows = stack_rows(sums, {}, {5}, {5}, facts)[5]
    assert [row.sum_ns for row in rows[:MOST_STACKS]] == [1_000 + n for n in range(count)][:29:-1]
    assert [row.api for row in rows[MOST_STACKS:]] == sorted(CALLS[:2])
    tree = tree_of(process(*rows))
    assert tree.children[OTHERS].ns == sum(1_000 + number for number in range(30))
    assert tree.ns == sum(ns for _count, ns in sums.values())


def test_waits_of_threads_that_do_not_call_are_no_part_of_who_calls() -> None:
    waits = {(5, 5, 0x10): (1, 30), (5, 6, 0x10): (1, 900)}
    assert sum(row.sum_ns for row in stack_rows({}, waits, {5}, {5}, Facts())[5]) == 30
    assert sum(row.sum_ns for row in stack_rows({}, waits, set(), {5}, Facts())[5]) == 930


# -- the cells ----------------------------------------------------------------------------------------


def test_each_cell_is_as_wide_as_its_share_and_lies_below_its_caller() -> None:
    shown = flame(usual(), (), 100, 9, UNICODE)
    rows = [[(cell.x, cell.width, cell.node.name) for cell in shown.cells if cell.y == y] for y in range(4)]
    assert sorted(rows[1]) == [(0, 90, "train.py:88 main()"), (90, 10, "stack not known")]
    assert sorted(rows[2])[:2] == [(0, 30, "train.py:40 load()"), (30, 60, "functional.py:7 cat() +3")]
    assert plain(shown.lines[1]).startswith("▏train.py:88 main() 90%  ")
    assert shown.deeper == 0


@pytest.mark.parametrize("width", [1, 7, 40, 120, 250])
def test_cells_never_overlap_and_never_leave_their_callers(width: int) -> None:
    for seed in range(6):
        tree = tree_of(random_process(seed))
        for height in (1, 3, 12):
            shown = flame(tree, (), width, height, UNICODE)
            assert len(shown.lines) <= height
            assert {line_width(line) for line in shown.lines} == {width}
            by_path = {cell.path: cell for cell in shown.cells}
            taken: set[tuple[int, int]] = set()
            for cell in shown.cells:
                columns = {(cell.y, x) for x in range(cell.x, cell.x + cell.width)}
                assert not columns & taken
                taken |= columns
                share = width * cell.node.ns / tree.ns
                assert abs(cell.width - share) < cell.y + 1, "a column a level at most"
                if cell.path:
                    above = by_path[cell.path[:-1]]
                    assert above.x <= cell.x
                    assert cell.x + cell.width <= above.x + above.width
                for x in (cell.x, cell.x + cell.width - 1):
                    assert shown.path_at(x, cell.y) == cell.path


def test_a_zoomed_node_has_the_whole_width() -> None:
    tree = usual()
    path: Path = ("train.py:88 main()",)
    shown = flame(tree, path, 90, 9, UNICODE)
    assert (shown.cells[0].path, shown.cells[0].width) == (path, 90)
    assert sorted((cell.x, cell.width) for cell in shown.cells if cell.y == 1) == [(0, 30), (30, 60)]
    assert " 90%" in plain(shown.lines[0]), "a share is one of all the time, zoomed or not"


def test_a_graph_begins_at_the_last_own_line_that_all_of_the_time_passes() -> None:
    chain = StackRow((TORCH, LOAD, MAIN, DEEP), SYNC, 1, 5)
    other = StackRow((LOAD, MAIN, DEEP), OFF_CPU, 1, 5)
    assert start(tree_of(process(chain, other)))[-1] == "train.py:40 load()"
    assert start(tree_of(process(chain)))[-1] == "train.py:40 load()", "never a library or a call"
    assert start(usual()) == ()
    assert start(tree_of(process())) == ()


def test_a_node_that_is_gone_is_zoomed_as_far_as_it_is_there() -> None:
    shown = flame(usual(), ("train.py:88 main()", "gone"), 60, 3, UNICODE)
    assert shown.cells[0].path == ("train.py:88 main()",)


def test_names_are_cut_where_there_is_no_room() -> None:
    lines = [plain(line) for line in flame(usual(), (), 30, 9, UNICODE).lines]
    assert lines[2].startswith("▏train.p…▏functional.p… 60%▏cu")
    assert plain(flame(usual(), (), 4, 9, UNICODE).lines[0]) == "▏pyt"


def test_the_selected_cell_is_marked_and_no_other() -> None:
    path = ("train.py:88 main()", "train.py:40 load()")
    lines = flame(usual(), (), 100, 9, UNICODE, selected=path).lines
    marked = [text for line in lines for text, token in line if "+select" in token]
    assert "".join(marked) == "▏train.py:40 load() 30%" + " " * 7


def test_arrows_go_to_the_caller_to_what_takes_longest_below_and_to_what_stands_beside() -> None:
    tree, main = usual(), ("train.py:88 main()",)
    load = (*main, "train.py:40 load()")
    assert move(tree, (), "down") == main
    assert move(tree, main, "down") == (*main, "functional.py:7 cat() +3")
    assert move(tree, (*main, "functional.py:7 cat() +3"), "left") == load
    assert move(tree, load, "left") == load
    assert move(tree, load, "right") == (*main, "functional.py:7 cat() +3")
    assert move(tree, load, "up") == main
    assert move(tree, (), "up") == move(tree, (), "left") == ()


def test_a_node_is_reported_in_words() -> None:
    assert node_text(usual(), ("train.py:88 main()",), 10**9) == (
        "train.py:88 main()",
        "0 % of wall time, 90 % of all, 9 calls+waits/s",
    )


def test_without_stacks_there_is_no_graph() -> None:
    assert flame(tree_of(process()), (), 80, 10, UNICODE) == Flame((), (), 0)


def test_names_of_others_are_escaped_and_ascii_is_ascii() -> None:
    tree = tree_of(process(StackRow((SourceLine("/x/\x1b[2J.py", 1, "ü"),), SYNC, 1, 5)))
    for glyphs in (UNICODE, ASCII):
        text = "".join(plain(line) for line in flame(tree, (), 80, 10, glyphs).lines)
        assert "\x1b" not in text
        assert glyphs is UNICODE or text.isascii()
