"""Processes that hold a GPU without calling it are listed with what NVML and /proc tell of them."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gputop.commands.screen.text import render_text
from gputop.engine.engine import Engine
from gputop.engine.frame import Frame
from gputop.engine.frame_json import frame_to_json
from gputop.ui.model.gpus.only_gpus import of_gpus, with_unwatched
from gputop.ui.model.listing.filter import narrowed, parse_filter
from probes.proc.gpu_clients import GpuClients
from probes.proc.resident import ResidentMemory
from probes.source import CLIENT, GPUS, MARK, RESIDENT, Sample
from tests import fake_frames as fake
from tests.screen_support import running, text_of

S = 1_000_000_000
HOLDER = 777
COMMAND = "jupyter-kernel --old"
CLIENTS = [{"pid": HOLDER, "kind": "C", "memory_bytes": 4 << 30}]


def told() -> Frame:
    """A frame of a machine on which one process holds two GPUs and nothing else is known."""
    engine = Engine({"start_ns": 0, "clock": {"boottime_ns": 0, "monotonic_ns": 0}})
    who = {"pid": HOLDER, "name": "jupyter-kernel", "command": COMMAND, "user": "eve", "start_ns": 2 * S}
    gpus = [{"index": index, "clients": CLIENTS} for index in (0, 3)]
    for second in (5, 6, 7):
        at = second * S
        engine.feed(Sample(CLIENT, at, who))
        used = {"pid": [HOLDER], "rss_bytes": [64 << 20], "cpu_ns": [second * S // 4]}
        engine.feed(Sample(RESIDENT, at, used))
        engine.feed(Sample(GPUS, at, {"driver": "580", "gpus": gpus}))
        engine.feed(Sample(MARK, at, {"number": second, "wall_ns": at, "lost": {}}))
    return engine.frame()


def test_a_holder_has_its_gpus_memory_cpu_time_and_run_time() -> None:
    frame = told()
    assert frame.processes == ()
    (row,) = frame.unwatched
    assert (row.pid, row.name, row.user, row.command) == (HOLDER, "jupyter-kernel", "eve", COMMAND)
    assert (row.gpus, row.gpu_memory_bytes, row.rss_bytes) == ((0, 3), 8 << 30, 64 << 20)
    assert row.on_cpu_percent == 25.0
    assert row.run_ns == 5 * S
    assert row.involuntary_per_second is None
    assert not row.watched


def test_it_is_listed_on_the_screen_and_as_text_but_is_no_process_of_the_json_frame() -> None:
    frame = told()
    text = render_text(frame, width=None)
    assert COMMAND in text
    assert "Waiting for a process" not in text
    assert frame_to_json(with_unwatched(frame))["processes"] == []


def test_filters_and_gpus_hold_for_it() -> None:
    frame = told()
    assert narrowed(frame, parse_filter("user:eve")).unwatched == frame.unwatched
    assert narrowed(frame, parse_filter("user:bob")).unwatched == ()
    assert with_unwatched(of_gpus(frame, {3})).processes == frame.unwatched
    assert with_unwatched(of_gpus(frame, {1})).processes == ()


@pytest.mark.slow
async def test_the_screen_says_what_is_known_of_it() -> None:
    held = replace(told().unwatched[0], gpus=(0,))
    async with running(replace(fake.frame(), unwatched=(held,)), (120, 40)) as (app, _feed, pilot):
        assert "Processes 5" in text_of(app)
        await pilot.press("tab", "tab", "G", "G", "slash", *"jupyter", "enter")
        shown = text_of(app)
        assert "8.0G" in shown
        assert "No CUDA call of this process was seen" in shown


@pytest.mark.slow
async def test_without_ebpf_no_call_and_no_switch_is_claimed_of_it() -> None:
    """Beside a program of 500 calls a second an unprivileged gputop said that it had made none."""
    held = replace(told().unwatched[0], gpus=(0,), runnable_percent=None)
    frame = replace(fake.frame(processes=0), unwatched=(held,), calls_observed=False)
    async with running(frame, (120, 40)) as (app, _feed, _pilot):
        shown = text_of(app)
        assert "Processes 1" in shown
        assert "Its CUDA calls are not known without eBPF." in shown
        assert "context switches normal" not in shown
        assert "has made" not in shown


def test_its_facts_and_figures_are_reported_once_it_holds_a_gpu() -> None:
    clients, resident = GpuClients(), ResidentMemory()
    gpus = Sample(GPUS, S, {"gpus": [{"clients": [{"pid": os.getpid()}]}]})
    (facts,) = clients.samples(gpus, (), S)
    assert facts.data["start_ns"] > 0
    assert clients.pids == {os.getpid()}
    (sample,) = resident.samples((), S, clients.pids)
    (used,) = sample.data["cpu_ns"]
    assert 0 < used <= 1.1 * sum(os.times()[:2]) * S + S / 50
    (watched,) = ResidentMemory().samples((os.getpid(),), S)
    assert "cpu_ns" not in watched.data
