"""What a machine as a whole lost time by: sums of ``machine`` samples. What was never told is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gputop.documents.stats_schema import MachineJson
from gputop.format import format_count, format_ns
from probes.samples import MachineData

NAMES: Final = ("steal_ns", "memory_some_ns", "memory_full_ns", "tcp_retransmits")


def add_machine(sums: dict[str, int], data: MachineData | Mapping[str, object]) -> None:
    """Adds what a sample, or other such sums, say."""
    for name in NAMES:
        value = data.get(name)
        if isinstance(value, int):
            sums[name] = sums.get(name, 0) + value


def machine_json(sums: Mapping[str, int]) -> MachineJson:
    """As JSON (docs/json.md)."""
    return {
        "steal_ns": sums.get("steal_ns"),
        "memory_some_ns": sums.get("memory_some_ns"),
        "memory_full_ns": sums.get("memory_full_ns"),
        "tcp_retransmits": sums.get("tcp_retransmits"),
    }


def machine_text(sums: Mapping[str, int]) -> str:
    """In one line, what is not none; "" where nothing is."""
    said = []
    if sums.get("steal_ns"):
        said.append(f"{format_ns(sums['steal_ns'])} of its CPUs stolen by the hypervisor")
    if sums.get("memory_some_ns"):
        full = format_ns(sums.get("memory_full_ns"))
        said.append(f"short of memory for {format_ns(sums['memory_some_ns'])} (no task could run: {full})")
    if sums.get("tcp_retransmits"):
        said.append(f"{format_count(sums['tcp_retransmits'])} TCP segments sent again")
    return f"machine: {', '.join(said)}" if said else ""
