"""Which of its devices a process used, by number, as its CUDA calls named them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from probes import api
from probes.arrays import PIDS, distinct, table
from probes.schema import Kind, Records, select

# cudaSetDevice, and calls that make a context: the runtime does so by the driver's cuDevicePrimaryCtxRetain,
# also where its own calls are not traced
_NAMING = np.zeros(1 << 16, np.bool_)  # by the 16 bits of a record's op
_NAMING[[op for op, row in enumerate(api.BY_OP) if row.argument == "device"]] = True
_CALL = np.uint8(Kind.CALL)  # an enum is numpy's slow path
_NEEDS_CONTEXT = np.array([row.group != "device" for row in api.BY_OP])
_IS_RUNTIME = np.array([row.layer == api.RUNTIME for row in api.BY_OP])
_ORDINAL = 0xFFFFFFFF  # an int argument: the upper half of its register holds anything


class DeviceCalls:
    """Collects the devices of each process from its records.

    Args:
        complete: True of a process whose calls were all seen: then the runtime without a device uses the
            first.
    """

    def __init__(self, complete: Callable[[int], bool]) -> None:
        self._complete = complete
        self._devices: dict[int, set[int]] = {}
        # by pid: processes with a context, whose device is known
        self.used: npt.NDArray[np.bool_] = table(np.bool_)
        self._open: set[int] = set()  # processes that live and have not used a context

    def expect(self, pid: int) -> None:
        """A process lives; while all of them have named their device, records are only searched for names."""
        if not self.used[pid % PIDS]:
            self._open.add(pid)

    def notice(self, records: Records) -> Iterator[tuple[int, dict[str, Any]]]:
        """(process, keys of its ``process`` sample) for all that is new in a batch."""
        naming = _NAMING.take(records["op"])
        if naming.any():
            yield from self._named(select(records, naming))
        if self._open:
            used = self.used.take(records["pid"], mode="clip")
            if not used.all():
                yield from self._implied(select(records, ~used))

    def _mark_used(self, pid: int) -> None:
        self.used[pid % PIDS] = True
        self._open.discard(pid)

    def _named(self, records: Records) -> Iterator[tuple[int, dict[str, Any]]]:
        good = records[(records["kind"] == _CALL) & (records["ret"] == 0)]
        pairs = set(zip(good["pid"].tolist(), (good["aux"] & _ORDINAL).tolist(), strict=True))
        for pid, ordinal in sorted(pairs):
            known = self._devices.setdefault(pid, set())
            if ordinal not in known:
                known.add(ordinal)
                late = {} if self.used[pid % PIDS] or self._complete(pid) else {"cuda_devices_missed": True}
                self._mark_used(pid)
                yield pid, {"cuda_devices": sorted(known), **late}

    def _implied(self, records: Records) -> Iterator[tuple[int, dict[str, Any]]]:
        """Processes that used a context and named no device."""
        calls = select(records, (records["kind"] == _CALL) & (records["ret"] == 0))
        calls = calls[_NEEDS_CONTEXT[calls["op"]]]
        through_runtime = set(calls["pid"][_IS_RUNTIME[calls["op"]]].tolist())
        for pid in distinct(calls["pid"]).tolist():
            if self.used[pid % PIDS]:
                continue
            self._mark_used(pid)
            if not self._complete(pid):
                yield pid, {"cuda_devices_missed": True}
            elif pid in through_runtime:
                yield pid, {"cuda_devices": [0]}
            else:  # the driver has no first device: something that is not traced made the context
                yield pid, {"cuda_devices_hidden": True}

    def forget(self, pid: int) -> bool:
        """Drops a process that ended or became another program; true if it had named a device."""
        self._devices.pop(pid, None)
        self._open.discard(pid)
        used = bool(self.used[pid % PIDS])
        self.used[pid % PIDS] = False
        return used
