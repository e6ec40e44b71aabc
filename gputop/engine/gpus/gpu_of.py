"""The GPUs of a process: by NVML's list, else by the devices that its CUDA calls named.

CUDA numbers devices as the process sees them. ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` at its start
map these to NVML's numbers; only NVML's list is right if the process changes them later. Where the mapping is
not certain the GPU is unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputop.engine.frame import ProcessRow

BY_NVML, BY_CALLS = "nvml", "calls"
_IN_BUS_ORDER = "PCI_BUS_ID"
_NAMED = 4  # processes named in a sentence

Usage = dict[int, dict[int, int]]  # process number by NVML -> {GPU index: bytes}


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as NVML numbers it; ``host`` is that of a merged recording's part."""

    index: int
    uuid: str
    name: str
    host: int = 0


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The GPUs of one process."""

    gpus: tuple[int, ...] | None  # NVML's indices; None if unknown
    source: str = ""  # ``nvml`` or ``calls``; "" if unknown
    unknown: str = ""  # why they are unknown
    memory_bytes: int | None = None  # its memory on them by NVML; None if NVML does not list it


class UnknownGpuError(Exception):
    """The mapping from CUDA's numbers to NVML's is not certain, for the reason in the message."""


def visible_devices(facts: Mapping[str, Any], devices: Sequence[Device]) -> list[int]:
    """Return NVML's index of each device that a process sees, in CUDA's order.

    Raises:
        UnknownGpuError: It is not certain.
    """
    devices = _of_host(devices, facts)
    if "cuda_visible_devices" not in facts:
        raise UnknownGpuError("its environment cannot be read")
    text = facts["cuda_visible_devices"]
    if text is None:
        _check_order(facts, devices)
        return [device.index for device in devices]
    found: list[int] = []
    for entry in (part.strip() for part in str(text).split(",")):
        index = _entry(entry, facts, devices)
        if index is None:  # as in CUDA, an invalid entry ends the list
            break
        if index in found:
            raise UnknownGpuError(f"CUDA_VISIBLE_DEVICES={text} names a GPU twice")
        found.append(index)
    return found


def _of_host(devices: Sequence[Device], facts: Mapping[str, Any]) -> Sequence[Device]:
    """The devices of a process's machine."""
    return [device for device in devices if device.host == facts.get("host", 0)]


def _entry(entry: str, facts: Mapping[str, Any], devices: Sequence[Device]) -> int | None:
    """The device of one entry of the list; None for none."""
    if entry.startswith("MIG-"):
        raise UnknownGpuError("it uses a part of a GPU (MIG)")
    if entry.startswith("GPU-"):
        named = [device.index for device in devices if device.uuid.startswith(entry)]
        return named[0] if len(named) == 1 else None
    if not entry.isdecimal() or int(entry) >= len(devices):
        return None
    _check_order(facts, devices)
    return devices[int(entry)].index


def _check_order(facts: Mapping[str, Any], devices: Sequence[Device]) -> None:
    """Raise unless CUDA and NVML number the same GPUs in the same order."""
    if len(devices) < 2:
        return
    if facts.get("namespace_pid") is not None:
        raise UnknownGpuError("it runs in a container, which may see only some of the GPUs")
    if facts.get("cuda_device_order") != _IN_BUS_ORDER and len({device.name for device in devices}) > 1:
        raise UnknownGpuError(
            "CUDA orders different GPUs by speed; start it with CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )


class Attribution:
    """The GPUs of all processes of one frame."""

    def __init__(
        self, usage: Usage | None, devices: Sequence[Device], processes: Mapping[int, Mapping[str, Any]]
    ) -> None:
        self._devices = sorted(devices, key=lambda device: device.index)
        self._has_usage = usage is not None
        self._usage: Usage = {}
        self._unclear: dict[int, str] = {}
        inner: dict[int, list[int]] = {}
        for pid, facts in processes.items():
            if facts.get("namespace_pid") is not None and facts.get("exited_ns") is None:
                inner.setdefault(int(facts["namespace_pid"]), []).append(pid)
        for listed, used in (usage or {}).items():
            self._match(listed, used, listed in processes, inner.get(listed, []))

    def _match(self, listed: int, used: dict[int, int], outer: bool, inner: list[int]) -> None:
        """Attribute a process by NVML's number, in a container perhaps the inner one, if only one fits."""
        fitting = [*([listed] if outer else []), *(pid for pid in inner if pid != listed)]
        if len(fitting) == 1:
            self._usage.setdefault(fitting[0], {}).update(used)
        for pid in fitting if len(fitting) > 1 else ():
            others = ", ".join(str(other) for other in fitting if other != pid)
            self._unclear[pid] = f"NVML lists a process {listed}, which may also be {others}"

    def of(self, pid: int, facts: Mapping[str, Any]) -> GpuUse:
        """Return the GPUs of one process.

        Args:
            pid: Its number.
            facts: Its ``process`` sample; ``cuda_devices``: the devices named in its calls.
        """
        if pid in self._usage:
            used = self._usage[pid]
            return GpuUse(tuple(sorted(used)), BY_NVML, memory_bytes=sum(used.values()))
        if pid in self._unclear and not facts.get("cuda_devices"):
            return GpuUse(None, unknown=self._unclear[pid])
        ordinals = facts.get("cuda_devices")
        if not isinstance(ordinals, list) or not ordinals:
            return self._without_name(facts)
        return self._by_calls(ordinals, facts)

    def _without_name(self, facts: Mapping[str, Any]) -> GpuUse:
        """The GPUs of a process that NVML does not list and whose calls named no device."""
        if reason := _why_not_named(facts):
            devices = _of_host(self._devices, facts)
            if len(devices) == 1:
                return GpuUse((devices[0].index,), BY_CALLS)
            return GpuUse(None, unknown=reason)
        if self._has_usage:
            return GpuUse((), BY_NVML, memory_bytes=0)
        return GpuUse(None, unknown="NVML lists no processes, and no CUDA call that names a GPU was seen")

    def _by_calls(self, ordinals: list[Any], facts: Mapping[str, Any]) -> GpuUse:
        if not self._devices:
            return GpuUse(None, unknown="NVML shows no GPU")
        try:
            visible = visible_devices(facts, self._devices)
        except UnknownGpuError as error:
            return GpuUse(None, unknown=str(error))
        chosen = {int(ordinal) for ordinal in ordinals}
        return GpuUse(tuple(sorted(visible[row] for row in chosen if row < len(visible))), BY_CALLS)


def _why_not_named(facts: Mapping[str, Any]) -> str:
    """Why a process uses a device that no call named; "" if it uses none."""
    if facts.get("cuda_devices_missed") is True:
        return "it chose its GPU before gputop watched it"
    if facts.get("cuda_devices_hidden") is True:
        return "a driver call that gputop does not trace made its context"
    return ""


def sentences(rows: Sequence[ProcessRow], facts: Mapping[int, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a sentence for each reason why the GPU of some processes is unknown."""
    reasons: dict[str, list[int]] = {}
    for row in rows:
        known = facts.get(row.pid, {})
        uses = known.get("cuda_devices") or _why_not_named(known)
        if row.gpus is None and row.exited_ns is None and uses:
            reasons.setdefault(row.gpus_unknown, []).append(row.pid)
    return tuple(
        f"which GPU {', '.join(map(str, pids[:_NAMED]))}{' and others' * (len(pids) > _NAMED)} "
        f"use{'s' * (len(pids) == 1)} is not known: {reason}"
        for reason, pids in reasons.items()
    )
