"""``gputop diff``: recordings with known steps, before and after a change, regular and not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.answer.report import Range
from gputop.analysis.compare import LEAST_CHANGE, SURE, Change, Diff, difference, spread
from gputop.analysis.compare_output import diff_to_text
from gputop.analysis.compare_parts import compare
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.analysis.findings.step_findings import Unit
from gputop.api.functions import to_json
from probes.schema import COPY_SHIFT, Kind
from probes.source import Item
from replay.writer import SessionWriter
from tests import items
from tests.cli_support import assert_one_sentence
from tests.inside import run
from tests.items import MS, START
from tests.json_page import assert_documented

US = 1_000
D2H = 2 << COPY_SHIFT
MIB = 1 << 20


def program(
    gaps_ns: Iterable[int], *, kernel_ns: int = 2 * MS, launches: int = 4, forced: int = 0
) -> list[Item]:
    """A loop: launches, a read of 1 MiB, the wait for it, then host work with ``forced`` preemptions."""
    now, records = START + 10 * MS, [items.event(Kind.EXEC, START)]
    for gap in gaps_ns:
        for _ in range(launches):
            now += 10 * US
            records.append(items.call(now, 5 * US))
        now += 20 * US
        records.append(items.call(now, 10 * US, "cudaMemcpyAsync", flags=D2H, bytes=MIB))
        now += kernel_ns
        records.append(items.call(now, kernel_ns - US, "cudaStreamSynchronize"))
        records += [
            items.off(now + place * 20 * US, 0, 10 * US, involuntary=1) for place in range(1, forced + 1)
        ]
        now += gap
    end = now + MS
    return [items.apis(), items.process(10), items.joined(records), items.mark(1, end)]


def irregular(count: int) -> list[Item]:
    """Waits without any repetition: no steps."""
    random = np.random.default_rng(3)
    now, records = START + 10 * MS, [items.event(Kind.EXEC, START)]
    for number in range(count):
        for _ in range(int(random.integers(1, 9))):
            now += 10 * US
            records.append(items.call(now, 5 * US, aux=int(random.integers(1, 1 << 40))))
        now += int(random.integers(1, 40)) * MS // 10
        records.append(items.call(now, 50 * US, "cudaStreamSynchronize"))
        now += MS * (number % 7)
    return [items.apis(), items.process(10), items.joined(records), items.mark(1, now + MS)]


def evidence(stream: list[Item]) -> Evidence:
    gatherer = Gatherer(items.HEADER)
    for item in stream:
        gatherer.feed(item)
    return assemble(gatherer)


def diff(before: list[Item], after: list[Item]) -> Diff:
    return compare(evidence(before), evidence(after))


def noisy(count: int, usual_ns: int, seed: int) -> list[int]:
    return (np.random.default_rng(seed).normal(1, 0.1, count) * usual_ns).astype(int).tolist()


def test_a_removed_gap_is_reported_in_a_sentence() -> None:
    found = diff(program([6 * MS] * 60), program([20 * US] * 200))
    assert found.unit is Unit.STEP
    assert found.sentence.startswith(
        "each step takes 2.1ms instead of 8.1ms (3.9 times as fast); C02 is gone ("
    )
    assert found.sentence.endswith("; no new cause.")
    (cause,) = found.causes
    assert cause.change is Change.GONE
    assert cause.before == pytest.approx(6 * MS, rel=0.03)
    assert cause.gain_ns is not None
    assert 5.98 * MS <= cause.gain_ns <= 6.1 * MS, "the GPU's idle time, but for the calls around it"
    assert cause.after is None


def test_the_way_back_is_a_new_cause_and_a_longer_step() -> None:
    found = diff(program([20 * US] * 200), program([6 * MS] * 60))
    assert "each step takes 8.1ms instead of 2.1ms (3.9 times as long)" in found.sentence
    assert "new: C02, " in found.sentence
    assert [row.change for row in found.causes] == [Change.NEW]


def test_figures_per_step_are_exact() -> None:
    found = diff(program([6 * MS] * 40, forced=3), program([3 * MS] * 40, launches=7))
    values = {one.name: (one.before, one.after) for one in found.measures}
    told = {name: (a.usual, b.usual) for name, (a, b) in values.items() if a is not None and b is not None}
    assert told["calls"] == (6, 9)
    assert told["launches"] == (4, 7)
    assert told["involuntary_switches"] == (3, 0)
    assert told["voluntary_switches"] == (0, 0)
    assert told["idle_ns"][0] == pytest.approx(6 * MS, rel=0.01)
    assert any("launches instead of" in note for note in found.notes)


@pytest.mark.parametrize(("before", "after"), [(300, 30), (30, 300)])
def test_the_length_of_a_recording_does_not_matter(before: int, after: int) -> None:
    found = diff(program(noisy(before, 6 * MS, 1)), program(noisy(after, 6 * MS, 2)))
    assert found.sentence.startswith("no clear change: each step takes 8.")
    assert [row.change for row in found.causes] == [Change.SAME]
    assert not any(one.clear for one in found.measures)


@pytest.mark.slow
def test_chance_is_seldom_mistaken_for_a_change() -> None:
    seen = sum(
        diff(program(noisy(60, 6 * MS, seed)), program(noisy(60, 6 * MS, seed + 100)))
        .measure("duration_ns")
        .clear
        for seed in range(20)
    )
    assert seen <= 2


def test_a_small_change_of_regular_steps_is_clear() -> None:
    assert (
        diff(program(noisy(400, 6 * MS, 1)), program(noisy(400, 5_500 * US, 2))).measure("duration_ns").clear
    )


def test_one_long_step_is_not_counted_and_reported() -> None:
    gaps = [6 * MS] * 60
    gaps[30] = 900 * MS
    found = diff(program(gaps), program([6 * MS] * 60))
    assert found.sentence.startswith("no clear change")
    assert any("1 step far longer" in note for note in found.notes)


def test_batches_that_come_four_at_a_time_count_by_what_they_cost_together() -> None:
    found = diff(program([100 * US, 100 * US, 100 * US, 28 * MS] * 24), program([100 * US] * 96))
    duration = found.measure("duration_ns")
    assert duration.before is not None
    assert duration.before.median < 3 * MS
    assert duration.before.usual == pytest.approx(9.2 * MS, rel=0.05)
    assert duration.clear


def test_without_steps_everything_is_per_second() -> None:
    found = diff(irregular(120), program([6 * MS] * 60))
    assert found.unit is Unit.SECOND
    assert "a second" in found.sentence
    assert found.notes[0].startswith("BEFORE has no steps")
    assert "duration_ns" not in {one.name for one in found.measures}
    idle = found.measure("idle_ns")
    assert idle.after is not None
    assert idle.after.usual == pytest.approx(0.74e9, rel=0.05)


def test_a_recording_without_calls_is_no_error() -> None:
    found = diff([items.apis(), items.mark(1, START + MS)], program([6 * MS] * 60))
    assert "one of the two enqueued no GPU work" in found.sentence
    assert diff_to_text(found)


def test_spread_of_nothing_is_unknown() -> None:
    assert spread(np.zeros(0, np.int64)) is None


def test_the_text_fits_its_sentence_and_tables() -> None:
    text = diff_to_text(diff(program([6 * MS] * 60), program([20 * US] * 200)))
    assert text.startswith("Each step takes 2.1ms instead of 8.1ms")
    assert "C02 device-to-host read every step " in text
    assert "no clear change" in text  # the number of launches


def test_a_mean_that_few_long_steps_make_says_so_of_its_middle_half() -> None:
    runs_ahead = program([*[20 * US] * 9, 60 * MS] * 20)
    (row,) = [line for line in diff_to_text(diff(runs_ahead, runs_ahead)).splitlines() if "duration" in line]
    assert row.count("mostly ") == 2
    even = diff_to_text(diff(program([6 * MS] * 60), program([6 * MS] * 60)))
    assert "mostly " not in even


def test_json_and_its_documentation_agree() -> None:
    document = to_json(diff(program([6 * MS] * 60), program([20 * US] * 200)))
    text = assert_documented(document)
    names = {one["name"] for one in document["measures"]} | {str(change) for change in Change} | set(Unit)
    assert not [name for name in names if f"`{name}`" not in text]
    assert f"more than {LEAST_CHANGE:.0%}".replace("%", " %") in text
    assert f"{SURE} times both" in text


def recording(path: Path, stream: list[Item]) -> Path:
    writer = SessionWriter(path, {**items.HEADER, "machine": {}})
    for item in stream:
        writer.write(item)
    writer.close()
    return path


@pytest.mark.parametrize(("proved_ns", "told"), [(60 * US, "up to 6.2ms"), (350 * MS, "5.8ms")])
def test_a_loss_that_is_hardly_proved_is_reported_by_what_it_is_at_most(proved_ns: int, told: str) -> None:
    found = diff(program([6 * MS] * 60), program([20 * US] * 200))
    (loss,) = found.before.report.findings
    estimated = replace(loss, loss=Range(proved_ns, 370 * MS, 360 * MS))
    side = replace(found.before, report=replace(found.before.report, findings=(estimated,)))
    changed = difference(found.unit, found.ratio, side, found.after)
    assert f"C02 is gone ({told} a step" in changed.sentence
    (cause,) = changed.causes
    assert (cause.spread_before is None) is ("up to" in told), "the steps' spread stands beside what it is of"


def test_the_command_compares_two_files(tmp_path: Path) -> None:
    before = recording(tmp_path / "before.gputop", program([6 * MS] * 60))
    after = recording(tmp_path / "after.gputop", program([20 * US] * 200))
    done = run("diff", str(before), str(after))
    assert (done.returncode, done.stderr) == (0, "")
    assert "C02 is gone" in done.stdout
    document = json.loads(run("diff", str(before), str(after), "--json").stdout)
    assert document["causes"][0]["change"] == "gone"


def test_the_command_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    good = recording(tmp_path / "good.gputop", program([6 * MS] * 60))
    assert_one_sentence(run("diff", str(good), str(tmp_path / "none")), 1, "none")
    damaged = tmp_path / "damaged.gputop"
    damaged.write_bytes(b"no session file")
    assert_one_sentence(run("diff", str(damaged), str(good)), 1, "damaged.gputop")
    assert_one_sentence(run("diff", str(good)), 2, "gputop diff --help")
    blind = tmp_path / "blind.gputop"
    writer = SessionWriter(blind, {**items.HEADER, "machine": {}, "calls_observed": False})
    for item in program([6 * MS] * 60):
        writer.write(item)
    writer.close()
    assert_one_sentence(run("diff", str(good), str(blind)), 1, "without eBPF")
