"""Totals of a whole recording equal what was put in."""

from __future__ import annotations

from gputop.engine.session_totals import collect
from gputop.engine.stats_output import stats_to_json, stats_to_text
from probes.schema import Kind
from probes.source import Item
from tests import items
from tests.items import HEADER, MS, SECOND, START
from tests.json_page import assert_valid


def recording() -> list[Item]:
    stream: list[Item] = [items.apis(), items.process(10, name="train"), items.names(START, {10: "main"})]
    stream += [items.call(START + row * MS, (row + 1) * 1000, bytes=10, ret=row % 2) for row in range(100)]
    stream += [items.call(START + row * MS, 900, "cuLaunchKernel", nested=1) for row in range(100)]
    stream += [items.event(Kind.FORK, START + 100 * MS, tid=11)]
    stream += [
        items.off(START + 200 * MS, 30 * MS, 10 * MS),
        items.off(START + 300 * MS, 0, MS, involuntary=1),
    ]
    stream += [items.event(Kind.EXIT, START + 600 * MS, tid=11)]
    stream += [
        items.still_open(START + SECOND, [{"tid": 10, "off_since": START + 900 * MS}]),
        items.mark(1, START + SECOND, calls=4),
    ]
    return stream


def test_calls_are_exact_and_percentiles_within_one_percent() -> None:
    (process,) = collect(HEADER, recording()).processes
    outer, nested = process.calls
    assert (outer.api, outer.layer, outer.nested) == ("cudaLaunchKernel", "runtime", False)
    assert (nested.api, nested.layer, nested.nested) == ("cuLaunchKernel", "driver", True)
    assert (outer.count, outer.errors, outer.bytes, outer.max_ns) == (100, 50, 500, 100_000)
    assert outer.sum_ns == sum(1000 * row for row in range(1, 101))
    for percentile, truth in ((outer.p50_ns, 50_000), (outer.p95_ns, 95_000), (outer.p99_ns, 99_000)):
        assert abs(percentile - truth) <= 0.01 * truth


def test_threads_add_up_to_their_lives() -> None:
    (process,) = collect(HEADER, recording()).processes
    main, worker = process.threads
    assert (main.voluntary_switches, main.involuntary_switches) == (1, 1)
    assert (main.runnable_ns, main.blocked_ns) == (11 * MS, 130 * MS)  # 100 ms still blocked at the end
    assert main.on_cpu_ns + main.runnable_ns + main.blocked_ns == SECOND
    assert (worker.tid, worker.on_cpu_ns) == (11, 500 * MS)


def test_json_has_the_promised_keys() -> None:
    data = stats_to_json(collect(HEADER, recording()))
    assert data["schema"] == "gputop.stats/1"
    assert_valid(data)
    assert data["duration_ns"] == SECOND
    assert data["lost"]["events"] == 4
    (process,) = data["processes"]
    call = process["calls"][0]
    promised = {"api", "layer", "nested", "count", "errors", "bytes", "sum_ns", "p50_ns", "p95_ns"}
    assert promised | {"p99_ns", "max_ns"} <= call.keys()
    promised = {"tid", "name", "voluntary_switches", "involuntary_switches", "on_cpu_ns", "runnable_ns"}
    assert promised | {"blocked_ns"} <= process["threads"][0].keys()


def test_text_says_that_losses_make_figures_low_and_escapes_names() -> None:
    stream = recording()
    stream.insert(1, items.process(10, name="evil\x1b[2J"))
    text = stats_to_text(collect(HEADER, stream), None)
    assert "lost 4 (figures are too low)" in text
    assert "\x1b" not in text


def test_a_recording_without_marks_is_empty() -> None:
    assert collect(HEADER, [items.apis()]).duration_ns == 0
