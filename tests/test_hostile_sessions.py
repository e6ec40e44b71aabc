"""A small session file that says very much takes gputop neither the memory nor the time of a large one."""

from __future__ import annotations

import os
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest

from gputop.commands.cli import run
from gputop.engine.calls import calltable
from gputop.engine.calls.calltable import CallTable, CallWindow, RowSums, left_out
from probes.schema import Kind, empty
from replay.coding import file_format as fmt
from replay.reader import SessionReader
from tests import inside

MOST_BYTES = 600 << 20  # gputop without a file takes 70 MB
MOST_S = 50.0  # of a CPU, of which a slow one takes 10; the files took minutes
HEAD = {"format": "gputop.session", "major": 1, "minor": 0, "start_ns": 1, "rate_hz": 4.0}
SECOND = 10**9

Chunks = Iterator[bytes]


def packed(data: object) -> bytes:
    return zlib.compress(msgpack.packb(data), 9)


def sample(kind: str, time_ns: int, body: bytes) -> bytes:
    return fmt.pack_chunk(kind, time_ns, time_ns, 1, body)


def mark(number: int, time_ns: int) -> bytes:
    return sample("mark", time_ns, packed({"number": number, "wall_ns": time_ns, "lost": {}}))


def records(time_ns: int, count: int = fmt.MAX_RECORDS, **nodes: Any) -> bytes:
    """A chunk of equal records, but for what the nodes say."""
    columns = [["t_end", "<u8", ["delta", time_ns, ["const", 1]]], ["kind", "|u1", ["const", int(Kind.CALL)]]]
    columns += [[name, "<u8", node] for name, node in nodes.items()]
    return fmt.pack_chunk("records", time_ns, time_ns + count, count, msgpack.packb(columns))


def up(first: int = 1) -> list[Any]:
    return ["delta", first, ["const", 1]]


def equal_records() -> Chunks:
    for number in range(2000):
        yield records(number * SECOND, pid=["const", 7], tid=["const", 7], duration=["const", 5])
        if number % 10 == 0:
            yield mark(number, number * SECOND)


def calls_of_many_processes() -> Chunks:
    for number in range(20):
        at = number * SECOND
        yield records(at, pid=up(number << 16), tid=up(number << 16), op=["const", 9], stack=up())
        yield mark(number, at + SECOND // 2)


def calls_of_many_functions() -> Chunks:
    """Another process each thousand calls, another function each call."""
    for number in range(20):
        pid = ["dict", 64, ["z", "|u1", zlib.compress(bytes(1 << 16))], up(number << 6)]
        yield records(number * SECOND, pid=pid, tid=up(), op=up(), duration=up())
        yield mark(number, number * SECOND + SECOND // 2)


def waits_of_many_threads() -> Chunks:
    for number in range(3):
        at = number * SECOND
        nodes = {"kind": ["const", int(Kind.OFFCPU)], "duration": ["const", 3]}
        yield records(at, pid=up(number << 16), tid=up(number << 16), **nodes)
        yield mark(number, at + SECOND // 2)


def nested(kind: str, **more: object) -> Callable[[], Chunks]:
    """Samples full of empty lists."""

    def chunks() -> Chunks:
        body = packed({**more, "pid": 7, "gpus": [[[]] * 200_000] * 5})
        for number in range(230):
            yield sample(kind, number + 1, body)
            yield mark(number, number + 1)

    return chunks


def long_tables() -> Chunks:
    columns = ("pid", "tid", "off_since", "queued_since", "queue_cpu", "syscall", "argument", "op")
    table = packed(dict.fromkeys((*columns, "flags", "call_since"), [0] * 200_000))
    names = packed({"tid": [1] * 200_000, "pid": [1] * 200_000, "name": [""] * 200_000})
    for number in range(30):
        yield sample("open", number + 1, table)
        yield sample("names", number + 1, names)
        yield mark(number, number + 1)


def times_far_apart() -> Chunks:
    for number, at in enumerate((1, SECOND, 1 << 40, 1 << 55, 1 << 61, (1 << 63) - 1)):
        yield records(min(at, 1 << 62), 50, pid=["const", 7], tid=["const", 7], duration=["const", at])
        yield mark(number, at)


def marks_without_end(count: int = 8000) -> Chunks:
    """All of them in one window, with a few calls between them."""
    for number in range(count):
        if number % 8 == 0:
            nodes = {
                "pid": up(number % 64),
                "tid": ["const", 7],
                "op": up(number % 100),
                "duration": ["const", 5],
            }
            yield records(number * 1000, 40, **nodes)
        yield mark(number, number * 1000)


FILES = {
    "marks without end": marks_without_end,
    "equal records": equal_records,
    "calls of many functions": calls_of_many_functions,
    "waits of many threads": waits_of_many_threads,
    "calls of many processes": calls_of_many_processes,
    "nested gpus": nested("gpus"),
    "nested processes": nested("process", watched=True),
    "long tables": long_tables,
    "times far apart": times_far_apart,
}


# ru_maxrss would count what the tests' own process had when it started this one
PROGRAM = """
import sys
from gputop.commands.cli import run
status = run(sys.argv[2:])
open(sys.argv[1], "w").write(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
sys.exit(status)
"""


def use_of(path: Path, *arguments: str) -> tuple[int, int, float]:
    """Exit status, largest memory in bytes and CPU seconds of a gputop."""
    errors = os.open(path.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    most = path.with_suffix(".kib")
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", PROGRAM, str(most), *arguments],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, errors, 2)],
    )
    os.close(errors)
    os.close(null)
    resource.prlimit(pid, resource.RLIMIT_CPU, (int(2 * MOST_S), int(2 * MOST_S)))
    _, status, used = os.wait4(pid, 0)
    exit_status = os.waitstatus_to_exitcode(status)
    assert exit_status >= 0, f"it was killed by signal {-exit_status}"
    return exit_status, int(most.read_text()) * 1024, used.ru_utime + used.ru_stime


READERS = (("stats",), ("explain",), ("replay", "--once"))
# each file and each reader at least once, in an order that takes the least; the other pairs in the long form
PAIRS = [
    pytest.param(
        name,
        reader,
        id=f"{name}-{' '.join(reader)}",
        marks=[] if (row + column) % len(READERS) == 0 else [pytest.mark.long],
    )
    for row, name in enumerate(FILES)
    for column, reader in enumerate(READERS)
]


@pytest.mark.parametrize(("name", "command"), PAIRS)
@pytest.mark.mainly("equal records-stats")
def test_a_file_that_says_very_much(name: str, command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "session"
    path.write_bytes(msgpack.packb(HEAD) + b"".join(FILES[name]()))
    assert path.stat().st_size < 1 << 20
    status, memory, seconds = use_of(path, *command, str(path))
    said = path.with_suffix(".err").read_text()
    print(
        f"{name}, {command[0]}: {path.stat().st_size >> 10} KB -> {memory >> 20} MB, {seconds:.1f} s, {said}"
    )
    assert status in (0, 1, 2, 3)
    assert "Traceback" not in said
    assert memory < MOST_BYTES
    assert seconds < MOST_S


@pytest.mark.slow
@pytest.mark.parametrize("command", [("replay", "--once"), ("explain",), ("stats",)])
def test_a_mark_takes_the_same_however_many_there_are(command: tuple[str, ...], tmp_path: Path) -> None:
    """Four times as many take four times as long, not sixteen times."""
    taken = []
    for count in (1500, 6000):
        path = tmp_path / str(count)
        path.write_bytes(msgpack.packb(HEAD) + b"".join(marks_without_end(count)))
        began = time.process_time()
        inside.run(*command, str(path))
        taken.append(time.process_time() - began)
    assert taken[1] < 8 * taken[0] + 1


def test_sums_over_a_window_are_those_of_its_ticks_also_where_calls_come_rarely() -> None:
    """They are added and taken out, not added up anew; the longest call goes with its tick."""
    window, random = CallWindow(), np.random.default_rng(3)
    ticks: list[RowSums] = []
    for number in range(60):
        calls = empty(int(random.integers(0, 3)) * int(random.integers(0, 20)))
        calls["pid"], calls["kind"] = random.integers(1, 2 + number, len(calls)), Kind.CALL
        calls["duration"], calls["bytes"] = random.integers(1, 1000, len(calls)), 7
        window.add_calls(calls)
        ticks.append(window.now.totals)
        window.close_tick(5)
        found, wanted = window.totals(), RowSums.zeros(window.table.rows)
        for tick in ticks[-5:]:
            wanted.add(tick)
        for name in ("count", "errors", "bytes", "sum_ns", "max_ns"):
            assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
        assert found.count[1:][~window.table.listed[1:]].sum() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "words"),
    [(equal_records, "more records than a file"), (long_tables, "larger samples than a file")],
)
def test_what_is_beyond_the_allowance_is_reported_as_damage(
    made: Callable[[], Chunks], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "session"
    path.write_bytes(msgpack.packb(HEAD) + b"".join(made()))
    reader = SessionReader(path)
    try:
        read = sum(len(item) for item in reader.items() if isinstance(item, np.ndarray))
        assert read < 3 * path.stat().st_size + (1 << 18)
        assert f"{words} of this size can hold" in " ".join(reader.problems)
    finally:
        reader.close()


def test_a_sample_full_of_empty_lists_is_damage_and_one_of_numbers_is_not() -> None:
    with pytest.raises(ValueError, match="more arrays and maps"):
        fmt.unpack(msgpack.packb([[]] * 100_000))
    numbers = np.random.default_rng(1).integers(0, 1 << 63, 50_000).tolist()
    assert fmt.unpack(msgpack.packb(numbers)) == numbers
    text = {"text": "\u0800\u0801\u0fff" * 9000}  # bytes that look like maps
    assert fmt.unpack(msgpack.packb(text)) == text


def test_calls_beyond_the_rows_of_a_table_are_counted_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calltable, "MOST_ROWS", 128)
    monkeypatch.setattr(calltable, "MAX_PROCESSES", 100)
    table, totals = CallTable(), RowSums.zeros(0)
    for first in (0, 50):
        calls = empty(60)
        calls["pid"], calls["op"], calls["kind"] = 1000 + first + np.arange(60), 3, Kind.CALL
        table.add(np.repeat(calls, 2), totals)
    assert table.rows <= 128
    assert int(totals.count.sum()) == 240
    (sentence,) = left_out(totals)
    assert sentence.startswith("22 calls are not listed")
    assert left_out(RowSums.zeros(0)) == ()


@pytest.mark.parametrize("command", [("stats",), ("explain",), ("replay", "--once"), ("stream", "--jsonl")])
@pytest.mark.parametrize("start", [{}, "", [1]])
def test_a_header_of_another_shape_is_reported_in_a_sentence(
    start: object, command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "session"
    path.write_bytes(msgpack.packb({**HEAD, "start_ns": start}) + mark(1, SECOND))
    assert run([*command, str(path)]) == 1
    assert "holds data that this gputop does not understand" in capsys.readouterr().err
