"""Rows of GPUs from NVML's samples: words for bits, reasons for what is not there, names for processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.documents.fields import document
from gputop.engine.engine import Engine
from gputop.engine.facts import Facts
from gputop.engine.frame import GpuRow
from gputop.engine.gpus import nvml_rows
from gputop.engine.gpus.nvml_rows import gpu_rows
from gputop.playback.player import frame_at
from probes.proc.belonging import container_of
from probes.source import CLIENT, GPUS, PROCESS, Item, Sample
from replay.private import Disguise
from replay.reader import SessionReader
from tests import items
from tests.items import MS, START
from tests.session_data import write

ID = "3f2a9c0d1e4b" + "5" * 52
CLIENT_10 = {"pid": 10, "type": "C", "memory_bytes": 1 << 30, "gpu_instance": None}
CLIENT_20 = {"pid": 20, "type": "C+G", "memory_bytes": 2 << 30, "gpu_instance": None}
USE_OF_10 = {
    "pid": [10],
    "sm_percent": [40],
    "memory_percent": [7],
    "encoder_percent": [0],
    "decoder_percent": [None],
}


def row(*known: Sample, **figures: Any) -> GpuRow:
    """The row of one GPU of which NVML told these figures a millisecond ago."""
    facts = Facts()
    for sample in known:
        facts.consume(sample)
    sample = Sample(GPUS, 0, {"gpus": [{"index": 0, "name": "H100", "unavailable": {}, **figures}]})
    return gpu_rows(sample, {}, 1_000_000, facts)[0]


def test_what_an_old_recording_lacks_is_reported() -> None:
    old = row(
        utilization_percent=50, fan_percent=None, unavailable={"fan_percent": "no fan"}, processes=[[10, 5]]
    )
    reasons = dict(old.unavailable)
    assert old.utilization_percent == 50
    assert reasons["fan_percent"] == "no fan"
    assert reasons["sm_active_percent"] == "not in this recording, which an older gputop made"
    assert old.processes is not None
    assert [(one.pid, one.memory_bytes, one.sm_percent) for one in old.processes] == [(10, 5, None)]


def test_every_figure_that_is_none_has_a_reason() -> None:
    made = document(row(utilization_percent=1, unavailable={"clients": "no", "processes": "no"}))
    told_elsewhere = {"clock_events": "clock_event_reasons"}
    for key, value in made.items():
        if value is None:
            assert made["unavailable"][told_elsewhere.get(key, key)]


@pytest.mark.parametrize(
    ("bits", "words", "held"),
    [
        (0, (), False),
        (0x1, ("idle",), False),
        (0x4, ("power limit",), False),
        (0x24, ("power limit", "temperature"), True),
        (0x88, ("hardware slowdown", "power brake"), True),
        (0x1000, ("0x1000",), False),
    ],
)
def test_reasons_of_clocks_in_words(bits: int, words: tuple[str, ...], held: bool) -> None:
    assert row(clock_event_reasons=bits).clock_events == words
    assert nvml_rows.held_down(bits) is held


@given(st.integers(0, 2**64 - 1))
def test_no_reason_of_clocks_is_left_out(bits: int) -> None:
    assert bool(nvml_rows.words(bits)) == bool(bits)


def test_processes_have_their_use_and_who_holds_most_comes_first() -> None:
    watched = Sample(
        PROCESS, 0, {"pid": 10, "watched": True, "name": "train", "user": "ann", "command": "train.py"}
    )
    stranger = Sample(
        CLIENT, 0, {"pid": 20, "name": "x", "user": "bob", "command": "x -y", "container": "docker 3f"}
    )
    found = row(watched, stranger, clients=[CLIENT_10, CLIENT_20], process_utilization=USE_OF_10).processes
    assert found is not None
    assert [(one.pid, one.kind, one.user, one.command, one.container, one.watched) for one in found] == [
        (20, "C+G", "bob", "x -y", "docker 3f", False),
        (10, "C", "ann", "train.py", "", True),
    ]
    assert [(one.sm_percent, one.memory_percent, one.decoder_percent) for one in found] == [
        (0, 0, 0),
        (40, 7, None),
    ]


def test_use_that_nvml_does_not_report_is_no_zero() -> None:
    found = row(clients=[CLIENT_10], process_utilization=None).processes
    assert found is not None
    assert (found[0].sm_percent, found[0].name) == (None, "")


def test_a_number_of_within_a_container_finds_its_process() -> None:
    inside = Sample(PROCESS, 0, {"pid": 4000, "watched": True, "name": "train", "namespace_pid": 10})
    found = row(inside, clients=[CLIENT_10], process_utilization=USE_OF_10).processes
    assert found is not None
    assert (found[0].pid, found[0].name, found[0].sm_percent) == (4000, "train", 40)


def test_a_private_recording_does_not_say_who_else_is_on_the_gpu() -> None:
    disguise = Disguise()
    disguise.sample(Sample(PROCESS, 0, {"pid": 10, "watched": True}))
    data = {"pid": 20, "name": "secret", "user": "bob", "uid": 7, "command": "x", "container": f"docker {ID}"}
    hidden = disguise.sample(Sample(CLIENT, 0, data)).data
    assert hidden == {"pid": 20, "name": "other-1", "user": "", "uid": None, "command": "", "container": ""}
    gpus = {
        "gpus": [
            {"index": 0, "name": "H100", "clients": [CLIENT_10, CLIENT_20], "process_utilization": USE_OF_10}
        ]
    }
    assert disguise.sample(Sample(GPUS, 0, gpus)).data == gpus


@pytest.mark.parametrize(
    ("cgroups", "container"),
    [
        (f"0::/system.slice/docker-{ID}.scope\n", "docker 3f2a9c0d1e4b"),
        (f"0::/docker/{ID}\n", "docker 3f2a9c0d1e4b"),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", "podman 3f2a9c0d1e4b"),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n", "kubernetes 3f2a9c0d1e4b"),
        (f"0::/somewhere/{ID}\n", "container 3f2a9c0d1e4b"),
        ("0::/lxc.payload.box/init.scope\n", "lxc box"),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", ""),
        ("4:memory:/task/931a73e8ad3fbe8f0fc394b70c34b480\n0::/\n", ""),
        ("", ""),
    ],
)
def test_the_container_that_control_groups_name(cgroups: str, container: str) -> None:
    assert container_of(cgroups.encode()) == container


def test_a_replay_that_is_sought_in_knows_who_was_told_long_before(tmp_path: Path) -> None:
    told = Sample(CLIENT, START, {"pid": 20, "name": "x", "user": "bob", "command": "x -y", "container": ""})
    gpu = {"index": 0, "name": "H100", "unavailable": {}, "clients": [CLIENT_20], "sm_active_percent": 12.5}
    stream: list[Item] = [items.apis(), told]
    for tick in range(40):
        now = START + tick * 250 * MS
        stream += [Sample(GPUS, now, {"driver": "1", "gpus": [gpu], "error": ""}), items.mark(tick, now)]
    reader = SessionReader(write(tmp_path / "session.msgpack", stream))
    engine = Engine(reader.header)
    live = [engine.frame() for item in stream if engine.feed(item)]
    found = live[-1].gpus[0].processes
    assert found is not None
    assert (found[0].user, live[-1].gpus[0].sm_active_percent) == ("bob", 12.5)
    assert [frame_at(reader, index) for index in (0, 39)] == [live[0], live[39]]
