"""Which of its devices a process used, by number, as its CUDA calls named them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from probes import api
from probes.schema import Kind, Records, select

# the runtime makes a context through the second one, also where its own calls are not traced
_NAMING = tuple(np.uint16(api.OP_OF[name]) for name in ("cudaSetDevice", "cuDevicePrimaryCtxRetain"))
_CALL = np.uint8(Kind.CALL)  # an enum takes numpy's slow path
_NEEDS_CONTEXT = np.array([row.group != "device" for row in api.BY_OP])
_ORDINAL = 0xFFFFFFFF  # an int argument: the upper half of its register holds anything


def _pids(pids: npt.NDArray[np.uint32]) -> set[int]:
    """The different ones; records of one process mostly follow each other, so few are sorted."""
    heads = pids[1:][pids[1:] != pids[:-1]]
    return {int(pids[0]), *np.unique(heads).tolist()}


class DeviceCalls:
    """Collects the devices of each process from its records.

    Args:
        complete: Whether all calls of a process were seen, so that one which named no device uses the first.
    """

    def __init__(self, complete: Callable[[int], bool]) -> None:
        self._complete = complete
        self._devices: dict[int, set[int]] = {}
        self._used: set[int] = set()  # processes with a context, whose device has been told

    def notice(self, records: Records) -> Iterator[tuple[int, dict[str, Any]]]:
        """(process, keys of its ``process`` sample) for all that is new in a batch."""
        ops = records["op"]
        named = np.flatnonzero((ops == _NAMING[0]) | (ops == _NAMING[1]))
        if len(named):
            yield from self._named(records[named])
        unknown = _pids(records["pid"]) - self._used if len(records) else set()
        if unknown:
            yield from self._implied(records, unknown)

    def _named(self, records: Records) -> Iterator[tuple[int, dict[str, Any]]]:
        good = records[(records["kind"] == _CALL) & (records["ret"] == 0)]
        pairs = set(zip(good["pid"].tolist(), (good["aux"] & _ORDINAL).tolist(), strict=True))
        for pid, ordinal in sorted(pairs):
            known = self._devices.setdefault(pid, set())
            if ordinal not in known:
                known.add(ordinal)
                self._used.add(pid)
                yield pid, {"cuda_devices": sorted(known)}

    def _implied(self, records: Records, pids: set[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Processes that used a context and named no device."""
        calls = select(records, (records["kind"] == _CALL) & (records["ret"] == 0))
        for pid in sorted(set(calls["pid"][_NEEDS_CONTEXT[calls["op"]]].tolist()) & pids):
            self._used.add(pid)
            yield pid, {"cuda_devices": [0]} if self._complete(pid) else {"cuda_devices_missed": True}

    def forget(self, pid: int) -> bool:
        """The process ended or became another program; whether it had told a device."""
        self._devices.pop(pid, None)
        told = pid in self._used
        self._used.discard(pid)
        return told
