"""Whom the kernel ended for lack of memory: from its record to what commands say; else nothing is said."""

from __future__ import annotations

from gputop.analysis.answer.wording import about_ends
from gputop.engine.facts import Facts
from gputop.engine.session_totals import collect
from gputop.engine.stats_output import stats_to_json, stats_to_text
from probes.proc.roster import Roster
from probes.samples import ProcessData, merged
from probes.schema import ExitFlag, Kind
from probes.source import NOTE, PROCESS, Item, Sample
from tests import items
from tests.items import HEADER, MS, SECOND, START
from tests.json_page import assert_valid


def told() -> list[Sample]:
    """What the roster makes of a birth, the kernel's choice and the end."""
    roster, found = Roster(), []
    for record in (
        items.event(Kind.FORK, START, pid=999_999_901, tid=999_999_901, comm=b"greedy"),
        items.event(Kind.OOM, START + 300 * MS, pid=999_999_901, tid=999_999_901),
        items.event(
            Kind.EXIT, START + 310 * MS, pid=999_999_901, tid=999_999_901, flags=ExitFlag.GROUP_DEAD, ret=9
        ),
    ):
        found += list(roster.notice(record))
    return found


def recording() -> list[Item]:
    return [items.apis(), items.process(10), *told(), items.mark(1, START + SECOND)]


def test_the_choice_is_a_fact_of_the_process_and_a_note() -> None:
    found = told()
    (fact,) = [one for one in found if one.kind == PROCESS and "oom_ns" in one.data]
    assert fact.data["oom_ns"] == fact.time_ns == START + 300 * MS
    (note,) = [one for one in found if one.kind == NOTE]
    assert note.data == {"text": "the kernel ends process 999999901: out of memory", "pid": 999_999_901}


def test_stats_show_the_moment_of_that_process_and_of_no_other() -> None:
    totals = collect(HEADER, recording())
    document = stats_to_json(totals)
    assert_valid(document)
    rows = {row["pid"]: row for row in document["processes"]}
    assert rows[999_999_901]["oom_ns"] == 300 * MS
    assert rows[999_999_901]["exited"]
    assert "oom_ns" not in rows[10]
    assert (
        stats_to_text(totals, None).count("! killed by the kernel 300ms after the start: out of memory") == 1
    )


def test_explain_notes_it_by_name() -> None:
    facts = Facts()
    for item in recording():
        if isinstance(item, Sample):
            facts.consume(item)
    (note,) = about_ends(facts, START)
    assert note == (
        "the kernel killed greedy (999999901) 300ms after the start of the recording: out of memory"
    )


def test_a_new_process_with_that_number_was_not_ended() -> None:
    known: ProcessData | None = None
    for sample in told():
        if sample.kind == PROCESS:
            known = merged(known, ProcessData(**sample.data))  # type: ignore[typeddict-item]
    assert known is not None
    assert known["oom_ns"] == START + 300 * MS
    later = merged(known, ProcessData(pid=999_999_901, name="other", exited_ns=None))
    assert "oom_ns" not in later
