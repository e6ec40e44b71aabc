"""Stays off the CPU: counted, added up, the worst one, and those for the disk or throttled; else unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.engine.session_totals import collect
from gputop.engine.stats_output import stats_to_json, stats_to_text
from gputop.engine.tally import Tally, tally
from probes.schema import OffFlag
from probes.source import SUMS, Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import items
from tests.items import HEADER, MS, SECOND, START
from tests.json_page import assert_valid

TELLS = {**HEADER, "tells": {"throttling": True}}


def recording() -> list[Item]:
    """Thread 10: 30 + 10 ms, 1 ms preempted, 20 + 2 ms for the disk, 50 ms throttled and 5 queued."""
    throttled = OffFlag.THROTTLED | OffFlag.QUEUED
    return [
        items.apis(),
        items.process(10),
        items.off(START + 100 * MS, 30 * MS, 10 * MS),
        items.off(START + 200 * MS, 0, MS, involuntary=1),
        items.off(START + 300 * MS, 20 * MS, 2 * MS, flags=OffFlag.IOWAIT),
        items.off(START + 400 * MS, 50 * MS, 5 * MS, flags=throttled),
        items.off(START + 410 * MS, 0, 9 * MS, tid=11, flags=OffFlag.BIRTH),
        items.off(START + 500 * MS, 4 * MS, 0, tid=11, flags=OffFlag.IOWAIT | OffFlag.QUEUED),
        items.still_open(START + SECOND, []),
        items.mark(1, START + SECOND),
    ]


class _Older(Tally):
    """As a recorder told its sums before it knew this."""

    def payload(self) -> dict[str, Any]:
        return {key: value for key, value in super().payload().items() if key != "stays"}


def told(header: dict[str, Any], stream: list[Item]) -> dict[str, Any]:
    document = stats_to_json(collect(header, stream))
    assert_valid(document)
    (process,) = document["processes"]
    made: dict[str, Any] = {str(row["tid"]): row["off_cpu"] for row in process["threads"] if "off_cpu" in row}
    return made | ({"all": process["off_cpu"]} if "off_cpu" in process else {})


def test_each_stay_counts_once_with_all_its_time_and_the_worst_is_kept() -> None:
    main = told(TELLS, recording())["10"]
    assert (main["count"], main["sum_ns"], main["worst_ns"]) == (4, 118 * MS, 55 * MS)
    assert main["average_ns"] == 118 * MS // 4


def test_the_disk_and_the_quota_have_the_time_before_the_run_queue() -> None:
    main = told(TELLS, recording())["10"]
    assert (main["disk_count"], main["disk_ns"]) == (1, 20 * MS)
    assert (main["throttled_count"], main["throttled_ns"]) == (1, 50 * MS)


def test_a_birth_is_no_stay_and_who_was_driven_off_did_not_wait_for_the_disk() -> None:
    other = told(TELLS, recording())["11"]
    assert (other["count"], other["sum_ns"], other["disk_count"]) == (1, 4 * MS, 0)


def test_a_process_has_the_stays_of_all_its_threads() -> None:
    whole = told(TELLS, recording())["all"]
    assert (whole["count"], whole["sum_ns"], whole["worst_ns"]) == (5, 122 * MS, 55 * MS)
    assert whole["average_ns"] == 122 * MS // 5


def test_what_this_kernel_does_not_report_is_unknown() -> None:
    main = told(HEADER, recording())["10"]
    assert (main["throttled_count"], main["throttled_ns"]) == (None, None)


@pytest.mark.parametrize(
    ("flags", "disk", "throttled"),
    [
        (0, (0, 0), (0, 0)),
        (OffFlag.IOWAIT, (1, 500 * MS), (0, 0)),
        (OffFlag.THROTTLED | OffFlag.QUEUED, (0, 0), (1, 500 * MS)),
    ],
)
def test_a_stay_that_is_open_at_the_end_counts_as_far_as_it_has_come(
    flags: int, disk: tuple[int, int], throttled: tuple[int, int]
) -> None:
    stream = [items.apis(), items.process(10), items.off(START + 100 * MS, MS, 0)]
    still = items.still_open(START + SECOND, [{"tid": 10, "off_since": START + 500 * MS}])
    still.data["flags"] = [flags]
    main = told(TELLS, [*stream, still, items.mark(1, START + SECOND)])["10"]
    assert (main["count"], main["sum_ns"], main["worst_ns"]) == (2, 501 * MS, 500 * MS)
    assert (main["disk_count"], main["disk_ns"]) == disk
    assert (main["throttled_count"], main["throttled_ns"]) == throttled


def test_the_time_off_the_cpu_is_that_in_queues_and_blocked() -> None:
    for process in collect(TELLS, recording()).processes:
        main = process.threads[0]
        assert main.off_cpu is not None
        assert main.off_cpu.sum_ns == main.runnable_ns + main.blocked_ns


def test_they_add_up_wherever_a_recording_is_cut() -> None:
    for cut in range(11):
        stream = recording()
        whole = Tally()
        for part in (stream[:cut], stream[cut:]):
            whole.merge(tally(part).payload())
        assert sorted(whole.stays.rows()) == sorted(tally(stream).stays.rows())


def test_sums_that_do_not_show_them_make_them_unknown_and_not_none() -> None:
    """What a gputop wrote in place of records that did not know this."""
    older = _Older()
    for item in recording():
        older.consume(item)
    sums = older.payload()
    stream = [items.apis(), items.process(10), Sample(SUMS, START, sums), items.mark(1, START + SECOND)]
    assert told(TELLS, stream) == {}
    text = stats_to_text(collect(TELLS, stream), None)
    assert "AVG-OFF" not in text
    assert "VOLUNTARY" in text


def test_totals_of_an_older_recorder_are_not_believed_where_the_records_show_more(tmp_path: Path) -> None:
    file = tmp_path / "old.gputop"
    writer = SessionWriter(file, TELLS, sums=_Older())
    for item in recording():
        writer.write(item)
    writer.close()
    reader = SessionReader(file)
    assert reader.totals() is not None, "the file has totals"
    reader.close()
    (process,) = gputop.stats(file).processes
    assert process.off_cpu is not None
    assert process.off_cpu.count == 5


def test_the_text_has_a_row_for_all_threads_and_says_what_kept_them() -> None:
    text = stats_to_text(collect(TELLS, recording()), None)
    (row,) = [line.split() for line in text.splitlines() if line.startswith("  all threads")]
    assert row[-2:] == ["24.4ms", "55.0ms"]
    assert "  waited for disk: 1 times, 20.0ms" in text
    assert "  throttled by its control group: 1 times, 50.0ms" in text
