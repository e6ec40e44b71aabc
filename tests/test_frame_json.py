"""A frame as JSON: keys with units, finite numbers, plain types."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from gputop.engine.frame import SCHEMA, GpuProcess, MigRow
from gputop.engine.frame_json import frame_to_json
from tests import fake_frames as fake
from tests.json_page import assert_valid

CALL = {
    "api",
    "layer",
    "nested",
    "count",
    "errors",
    "bytes",
    "sum_ns",
    "p50_ns",
    "p95_ns",
    "p99_ns",
    "max_ns",
}
THREAD = {
    "tid", "name", "voluntary_switches", "involuntary_switches", "on_cpu_ns", "runnable_ns", "blocked_ns",
}  # fmt: skip
GPU = {
    "index", "name", "utilization_percent", "memory_used_bytes", "memory_total_bytes", "power_milliwatts",
}  # fmt: skip


def numbers(value: Any) -> list[float]:
    """All numbers in a JSON value."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, int | float) else []


def test_the_object_survives_json_and_all_numbers_are_finite() -> None:
    made = frame_to_json(fake.frame(3, processes=3))
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["schema"] == SCHEMA == "gputop.frame/1"
    assert_valid(made)
    assert all(math.isfinite(number) for number in numbers(made))


def test_a_number_that_is_none_becomes_null() -> None:
    made = frame_to_json(replace(fake.frame(), own_cpu_percent=float("nan"), rate_hz=float("inf")))
    assert_valid(made)
    assert made["own_cpu_percent"] is None
    assert made["rate_hz"] is None


def test_a_gpu_that_is_cut_and_those_who_use_it_are_as_the_schema_says() -> None:
    unknown = MigRow(0, "MIG-1", "1g.10gb", *[None] * 9, unavailable=(("memory_used_bytes", "no rights"),))
    known = MigRow(1, "MIG-2", "1g.10gb", 1, 0, 14, 1 << 20, 10 << 30, 50.0, 25.0, 0.0, 12.5)
    user = GpuProcess(
        7, "C", None, 0, None, None, None, 1, "python", "ada", "python train.py", "", watched=True
    )
    made = frame_to_json(fake.frame(gpus=1))
    assert made["gpus"][0]["mig"] == []
    cut = replace(fake.gpu(0), mig_enabled=True, mig=(unknown, known), processes=(user,))
    made = frame_to_json(replace(fake.frame(), gpus=(cut, replace(cut, processes=None))))
    assert_valid(made)
    assert made["gpus"][0]["mig"][0]["unavailable"] == {"memory_used_bytes": "no rights"}


def test_the_keys_other_programs_rely_on() -> None:
    made = frame_to_json(fake.frame(processes=1))
    process = made["processes"][0]
    assert {"pid", "name", "calls", "threads"} <= set(process)
    assert set(process["calls"][0]) >= CALL
    assert set(process["threads"][0]) >= THREAD
    assert set(made["gpus"][0]) >= GPU
    assert made["gpus"][0]["unavailable"] == {"fan_percent": "this GPU has no fan"}
    assert "events" in made["lost"]
    assert made["storms"][0]["occupants"][0]["name"] == "stress-ng"


def test_hostile_names_stay_within_their_strings() -> None:
    frame = fake.frame(processes=1)
    named = replace(frame.processes[0], name='\x1b[2J"\ud800')
    text = json.dumps(frame_to_json(replace(frame, processes=(named,))))
    assert text.isascii()
    assert "\x1b" not in text
