"""The widths of a table's columns: what its texts need, without a jump."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.engine.frame import Frame
from gputop.format import width_of
from gputop.ui.model.listing import process_table
from gputop.ui.model.look import UNICODE, plain
from gputop.ui.model.table import Table
from tests import fake_frames as fake

S = 1_000_000_000


def made(tick: int = 0, *, command: str = "python /opt/jobs/train.py --epochs 90 --data /mnt/sets/train",
         name: str = "python", user: str = "root", storm: bool = False) -> Frame:  # fmt: skip
    """A machine of twelve programs, a second a tick."""
    frame = fake.frame(processes=12, gpus=8, storm=storm)
    rows = tuple(
        replace(row, command=f"{command} --port {8000 + place}", name=name, user=user)
        for place, row in enumerate(frame.processes)
    )
    return replace(frame, processes=rows, time_ns=frame.time_ns + tick * S)


def drawn(table: Table, frame: Frame, width: int) -> list[str]:  # type: ignore[type-arg]
    """The table's lines at a frame."""
    table.update(frame.processes, frame.time_ns)
    lines = table.lines(
        process_table.context_of(frame, UNICODE),
        width,
        0,
        12,
        focused=False,
        mark=False,
        row_token=lambda _: "",
    )
    return [plain(line) for line in lines]


@pytest.mark.parametrize("name", ["python", "sh"])
@pytest.mark.parametrize("user", ["root", "bob"])
def test_what_short_texts_leave_is_for_the_command(name: str, user: str) -> None:
    """At 250 columns NAME once was 28 wide for ``python``, and the command cut."""
    frame = made(name=name, user=user)
    _heading, *rows = drawn(process_table.process_table(), frame, 248)
    assert {row[row.index("--data") :].strip() for row in rows} == {
        f"--data /mnt/sets/train --port {8000 + place}" for place in range(12)
    }
    assert "cudaMemcpyAsync" in "".join(rows), "there is room for whole names, too"
    heading = drawn(process_table.process_table(), made(name=name, user=user, command="x" * 90), 200)[0]
    assert heading.index("USER") - heading.index("NAME") == max(width_of(name), 4) + 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("python3.12 /srv/very/long/path/to/a/script/train.py --bs 64 --lr 3e-4", "train.py --b"),
        ("/usr/bin/python3 -u -I /srv/a/train.py --bs 64 --lr 3e-4", "train.py --b"),
        ("python -m torch.distributed.run --nproc 8", "-m torch.dis"),
        ("python -B -c from multiprocessing.spawn import spawn_main", "python -B -c"),
        ("/opt/bin/trainer /srv/very/long/path/to/config.yaml", "trainer conf"),
        ("bash -c sleep 1000000", "bash -c slee"),
        ("python", "python"),
    ],
)
def test_without_room_a_command_keeps_what_tells_programs_apart(command: str, told: str) -> None:
    """At 120 columns each of twelve programs once read ``python prog.p…``."""
    rows = drawn(process_table.process_table(), made(command=command), 118)[1:]
    assert all(told in row for row in rows)


def test_commands_of_a_narrow_column_are_alike() -> None:
    frame = made()
    commands = ("python full.py", "python train.py --epochs 90 --bs 64")
    rows = tuple(replace(row, command=commands[place % 2]) for place, row in enumerate(frame.processes))
    text = "\n".join(drawn(process_table.process_table(), replace(frame, processes=rows), 118))
    assert "full.py" in text
    assert "train.py --ep" in text
    assert "python" not in text


def test_no_column_jumps_when_a_text_gets_shorter_for_a_moment() -> None:
    table = process_table.process_table()
    wide = drawn(table, made(0, name="pt_data_worker"), 200)[0]
    assert drawn(table, made(20, name="sh"), 200)[0] == wide
    assert drawn(table, made(25, name="pt_data_worker"), 200)[0] == wide
    assert drawn(table, made(50, name="sh"), 200)[0] == wide
    table.reading = True
    assert drawn(table, made(51, name="sh"), 200)[0] == wide, "nor while the order is held"
    table.reading = False
    assert len(drawn(table, made(60, name="sh"), 200)[0].split("USER")[0]) < len(wide.split("USER")[0])


def test_the_state_goes_half_a_minute_after_the_last_storm() -> None:
    """It once stayed, 13 wide and empty, while commands were cut."""
    table = process_table.process_table()
    assert "STATE" in drawn(table, made(0, storm=True), 200)[0]
    assert "STATE" in drawn(table, made(29), 200)[0], "it does not come and go with each storm"
    assert "STATE" not in drawn(table, made(31), 200)[0]
    assert "STATE" in drawn(table, made(32, storm=True), 200)[0]
    table.reading = True
    assert "STATE" in drawn(table, made(90), 200)[0]


def test_the_state_is_as_wide_as_what_it_says() -> None:
    table = process_table.process_table()
    storm = drawn(table, made(0, storm=True), 248)
    assert storm[0].index("COMMAND") - storm[0].index("STATE") == len("▲ storm") + 1
    frame = made(1, storm=True)
    rows = (replace(frame.processes[1], exited_ns=frame.time_ns - 12 * S), *frame.processes[2:])
    gone = "".join(drawn(table, replace(frame, processes=rows), 248))
    assert "exited 12s" in gone
