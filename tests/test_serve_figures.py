"""Figures of processes on /metrics are those of frames, under the same names; an unknown one is left out."""

from __future__ import annotations

from typing import Any

from gputop.documents.fields import declared
from gputop.engine.frame import ProcessRow
from gputop.serve.metrics.process_info import People
from probes.source import GPUS, PROCESS, RESIDENT, STALE_NS, Sample
from tests.conftest import needed
from tests.items import START

USE = {"pid": [7], "sm_percent": [40], "memory_percent": [10], "encoder_percent": [0], "decoder_percent": [0]}


def people(*gpus: dict[str, Any]) -> People:
    """Two processes, of which NVML knows one."""
    made = People()
    for pid in (7, 8):
        made.consume(Sample(PROCESS, START, {"pid": pid, "watched": True, "start_ns": 1}))
    made.consume(Sample(RESIDENT, START, {"pid": [7, 8, 9], "rss_bytes": [5 << 20, 6 << 20, 7 << 20]}))
    made.consume(Sample(GPUS, START, {"gpus": list(gpus)}))
    made.forget({7, 8})
    return made


def gpu(index: int, use: object) -> dict[str, Any]:
    """A GPU of which process 7 has a gigabyte."""
    clients = [{"pid": 7, "type": "C", "memory_bytes": 1 << 30, "gpu_instance": None}]
    return {"index": index, "processes": [[7, 1 << 30]], "clients": clients, "process_utilization": use}


def test_figures_are_summed_over_gpus_and_old_ones_are_not_there() -> None:
    found = people(gpu(0, USE), gpu(1, USE)).figures(START)
    assert found[7] == {
        "rss_bytes": 5 << 20, "gpu_memory_bytes": 2 << 30, "sm_percent": 80, "memory_percent": 20,
    }  # fmt: skip
    assert found[8] == {"rss_bytes": 6 << 20}
    assert 9 not in found, "it is not counted"
    assert people(gpu(0, USE)).figures(START + STALE_NS + 1) == {7: {}, 8: {}}


def test_a_gpu_that_does_not_report_who_uses_it_gives_no_zero() -> None:
    assert "sm_percent" not in people(gpu(0, None)).figures(START)[7]
    assert (
        people(gpu(0, {**USE, "pid": [], "sm_percent": [], "memory_percent": []})).figures(START)[7][
            "sm_percent"
        ]
        == 0
    ), "NVML lists who works: it does nothing"


def test_each_figure_is_a_field_of_a_frame_and_a_gauge() -> None:
    metrics = needed("gputop.serve.metrics.metric_families")
    assert set(metrics.FIGURES) <= {one.key for one in declared(ProcessRow)}
    found = people(gpu(0, USE)).figures(START)
    now = metrics.CurrentFigures({}, 0.0, 0, 0, 0, 0, 0, 0, {}, {}, {}, figures=found)
    told = {
        (sample.name, sample.labels["pid"]): sample.value
        for family in metrics.families_of_figures(now)
        for sample in family.samples
    }
    assert told == {
        ("gputop_process_resident_memory_bytes", "7"): 5 << 20,
        ("gputop_process_resident_memory_bytes", "8"): 6 << 20,
        ("gputop_process_gpu_memory_bytes", "7"): 1 << 30,
        ("gputop_process_gpu_sm_ratio", "7"): 0.4,
        ("gputop_process_gpu_memory_access_ratio", "7"): 0.1,
    }
