"""Waits for the disk by file: each once, under what its descriptor was; where that was not told, unnamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gputop.api import totals
from gputop.api.reading import SILENT
from gputop.engine.session_totals import collect, finish
from gputop.engine.stats_output import stats_to_json, stats_to_text
from gputop.engine.tally import FileSums, Tally, tally
from probes.process.syscall_numbers import numbers
from probes.schema import NO_SYSCALL, OffFlag
from probes.source import FILES, MARK, SUMS, Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import items
from tests.items import HEADER, MS, SECOND, START
from tests.json_page import assert_valid

PREAD, OPENAT, FSYNC = (numbers([name], "x86_64")[0] for name in ("pread64", "openat", "fsync"))
AT_FDCWD = 0xFFFFFF9C


def wait(at_ms: int, ms: int, call: int = PREAD, argument: int = 3, flags: int = OffFlag.IOWAIT) -> Item:
    """Blocked for the disk, and then 2 ms in a run queue."""
    return items.off(START + at_ms * MS, ms * MS, 2 * MS, op=call, argument=argument, flags=flags)


def files(at_ms: int, **what: str) -> Sample:
    """What descriptors are: ``fd3="file:/a"``."""
    told = {"pid": [10] * len(what), "fd": [int(name[2:]) for name in what], "what": [*what.values()]}
    return Sample(FILES, START + at_ms * MS, told)


def recording() -> list[Item]:
    """Two files under one descriptor, one after the other; another one; calls without any; a page."""
    return [
        items.apis(),
        items.process(10),
        wait(100, 30),
        wait(150, 10),
        wait(180, 7, FSYNC, 4),
        files(250, fd3="file:/data/a", fd4="file:/log"),
        items.mark(1, START + 250 * MS),
        wait(300, 20),
        files(500, fd3="file:/data/b"),
        items.mark(2, START + 500 * MS),
        wait(600, 40),
        wait(650, 5, OPENAT, AT_FDCWD),
        wait(660, 3, NO_SYSCALL, 0),
        wait(670, 9, PREAD, 77),
        wait(680, 50, flags=OffFlag.IOWAIT | OffFlag.QUEUED),
        wait(690, 50, flags=0),
        items.still_open(START + SECOND, []),
        items.mark(3, START + SECOND),
    ]


WAITS = [
    ("/data/a", "pread64", 3, 60, 30),
    ("/data/b", "pread64", 1, 40, 40),
    (None, "pread64", 1, 9, 9),
    ("/log", "fsync", 1, 7, 7),
    (None, "openat", 1, 5, 5),
    (None, None, 1, 3, 3),
]


def told(document: Any) -> list[tuple[Any, ...]]:
    assert_valid(document)
    (process,) = document["processes"]
    rows = process.get("disk_waits", [])
    return [(r["file"], r["call"], r["count"], r["sum_ns"] / MS, r["worst_ns"] / MS) for r in rows]


def test_each_wait_counts_once_under_what_its_descriptor_was_then() -> None:
    assert told(stats_to_json(collect(HEADER, recording()))) == WAITS


def test_all_of_them_are_what_the_stays_say_of_the_disk() -> None:
    (process,) = collect(HEADER, recording()).processes
    assert process.off_cpu is not None
    assert process.off_cpu.disk_count == sum(row.count for row in process.disk_waits)
    assert process.off_cpu.disk_ns == sum(row.sum_ns for row in process.disk_waits)


def test_they_add_up_wherever_a_recording_is_cut() -> None:
    for cut in range(len(recording())):
        stream, whole = recording(), Tally()
        for part in (stream[:cut], stream[cut:]):
            whole.merge(tally(part).payload())
        for item in stream:
            if isinstance(item, Sample) and item.kind != MARK:
                whole.know(item)
        whole.consume(stream[-1])
        assert told(stats_to_json(finish(HEADER, whole))) == WAITS


def test_what_the_recorder_added_up_is_what_its_file_says(tmp_path: Path) -> None:
    file = tmp_path / "session.gputop"
    writer = SessionWriter(file, HEADER, sums=FileSums())
    for item in recording():
        writer.write(item)
    writer.close()
    reader = SessionReader(file)
    assert reader.totals() is not None
    assert told(stats_to_json(totals.stats_of(reader, SILENT))) == WAITS


def test_sums_in_place_of_records_show_them_too_and_older_ones_make_them_unknown() -> None:
    stream = recording()
    sums = tally(stream[2:5]).payload()
    known = [*stream[:2], Sample(SUMS, START, sums), *stream[5:]]
    assert told(stats_to_json(collect(HEADER, known))) == WAITS
    older = {key: value for key, value in sums.items() if key not in ("disk", "files")}
    unknown = [*stream[:2], Sample(SUMS, START, older), *stream[5:]]
    assert told(stats_to_json(collect(HEADER, unknown))) == []


def test_totals_of_an_older_recorder_are_not_believed_where_the_records_show_more() -> None:
    older = {
        key: value for key, value in tally(recording()).payload().items() if key not in ("disk", "files")
    }
    with pytest.raises(ValueError, match="lack the files of waits"):
        Tally().merge(older)
    asleep = [*recording()[:2], wait(100, 30, flags=0), recording()[-1]]
    Tally().merge(
        {key: value for key, value in tally(asleep).payload().items() if key not in ("disk", "files")}
    )


@pytest.mark.slow
def test_who_waits_for_more_files_than_are_remembered_loses_no_wait() -> None:
    stream = [items.apis(), items.process(10)]
    stream += [wait(100, 1, argument=number) for number in range(5000)]
    (process,) = collect(HEADER, [*stream, items.mark(1, START + SECOND)]).processes
    assert sum(row.count for row in process.disk_waits) == 5000


def test_the_text_has_the_longest_first() -> None:
    text = stats_to_text(collect(HEADER, recording()), None)
    lines = [line.split() for line in text.splitlines()]
    heads = lines.index(["COUNT", "SUM", "WORST", "IN", "FILE"])
    assert lines[heads + 1] == ["3", "60.0ms", "30.0ms", "pread64", "/data/a"]
    assert lines[heads + 6][-4:] == ["page", "of", "memory", "-"]
