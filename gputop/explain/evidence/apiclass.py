"""What a traced function means for the question whether the GPU has work.

Source of the rules: the runtime API's "API synchronization behavior" and "Stream synchronization
behavior" pages; docs/explain.md tells them in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt


class Role(IntEnum):
    """The part of a call in the proof."""

    OTHER = 0
    ENQUEUE = 1  # gives a stream work
    COPY_SYNC = 2  # gives the stream work and waits, depending on its direction and the host memory
    PROVE_DEVICE = 3  # its success proves all streams of the device empty
    PROVE_STREAM = 4
    PROVE_EVENT = 5
    RECORD = 6  # puts an event behind the work of a stream
    WAIT = 7  # makes a stream wait for an event
    CREATE_STREAM = 8
    HOST_RANGE = 9  # page-locks memory
    HOST_FREE = 10
    SET_DEVICE = 11
    CAPTURE_BEGIN = 12
    CAPTURE_END = 13


_BY_NAME: dict[str, Role] = {
    "DeviceSynchronize": Role.PROVE_DEVICE,
    "CtxSynchronize": Role.PROVE_DEVICE,
    "StreamSynchronize": Role.PROVE_STREAM,
    "StreamQuery": Role.PROVE_STREAM,
    "EventSynchronize": Role.PROVE_EVENT,
    "EventQuery": Role.PROVE_EVENT,
    "EventElapsedTime": Role.PROVE_EVENT,
    "EventRecord": Role.RECORD,
    "EventRecordWithFlags": Role.RECORD,
    "StreamWaitEvent": Role.WAIT,
    "StreamCreate": Role.CREATE_STREAM,
    "StreamCreateWithFlags": Role.CREATE_STREAM,
    "StreamCreateWithPriority": Role.CREATE_STREAM,
    "MallocHost": Role.HOST_RANGE,
    "HostAlloc": Role.HOST_RANGE,
    "HostRegister": Role.HOST_RANGE,
    "MemAllocHost": Role.HOST_RANGE,
    "MemHostAlloc": Role.HOST_RANGE,
    "MemHostRegister": Role.HOST_RANGE,
    "FreeHost": Role.HOST_FREE,
    "HostUnregister": Role.HOST_FREE,
    "MemFreeHost": Role.HOST_FREE,
    "MemHostUnregister": Role.HOST_FREE,
    "SetDevice": Role.SET_DEVICE,
    "StreamBeginCapture": Role.CAPTURE_BEGIN,
    "StreamBeginCaptureToGraph": Role.CAPTURE_BEGIN,
    "StreamBeginRecaptureToGraph": Role.CAPTURE_BEGIN,
    "StreamEndCapture": Role.CAPTURE_END,
    "GraphLaunch": Role.ENQUEUE,
    "GraphUpload": Role.ENQUEUE,
    "MallocAsync": Role.ENQUEUE,  # ordered in the stream: taken for work, which only shortens proofs
    "MallocFromPoolAsync": Role.ENQUEUE,
    "FreeAsync": Role.ENQUEUE,
    "MemAllocAsync": Role.ENQUEUE,
    "MemAllocFromPoolAsync": Role.ENQUEUE,
    "MemFreeAsync": Role.ENQUEUE,
    "StreamWaitValue32": Role.ENQUEUE,
    "StreamWaitValue64": Role.ENQUEUE,
    "StreamWriteValue32": Role.ENQUEUE,
    "StreamWriteValue64": Role.ENQUEUE,
    "StreamBatchMemOp": Role.ENQUEUE,
}
_SYNC_COPIES = ("Memcpy", "Memcpy2D", "Memcpy3D", "MemcpyToSymbol", "MemcpyFromSymbol", "MemcpyHtoD")
_SYNC_COPIES_TOO = ("MemcpyDtoH", "Memcpy2DUnaligned")


def stem(name: str) -> str:
    """``cudaMemcpyAsync``, ``cuMemcpyAsync`` -> ``MemcpyAsync``."""
    for prefix in ("cuda", "cu", "nccl"):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def role(name: str, group: str) -> Role:
    """The role of one function of the API table."""
    short = stem(name)
    if short in _BY_NAME:
        return _BY_NAME[short]
    if short in _SYNC_COPIES or short in _SYNC_COPIES_TOO:
        return Role.COPY_SYNC
    if group in ("launch", "copy", "set"):
        return Role.ENQUEUE
    if group == "collective" and name not in ("ncclGroupStart", "ncclGroupEnd"):
        return Role.ENQUEUE
    return Role.OTHER


class Group(IntEnum):
    """Groups of the API table, as numbers."""

    OTHER = 0
    LAUNCH = 1
    COPY = 2
    SET = 3
    SYNC = 4
    QUERY = 5
    EVENT = 6
    ALLOC = 7
    FREE = 8
    HOST = 9
    STREAM = 10
    GRAPH = 11
    MODULE = 12
    DEVICE = 13
    COLLECTIVE = 14


GROUPS: dict[str, Group] = {group.name.lower(): group for group in Group}


class ApiTable:
    """The API table of a session, as columns that are indexed by ``op``.

    Args:
        rows: ``[name, layer, group]`` of each op, as the ``apis`` sample has them.
    """

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self.names: tuple[str, ...] = tuple(str(row[0]) for row in rows)
        groups = [str(row[2]) if len(row) > 2 else "" for row in rows]
        size = len(rows)
        self.role: npt.NDArray[np.uint8] = np.zeros(max(size, 1), np.uint8)
        self.group: npt.NDArray[np.uint8] = np.zeros(max(size, 1), np.uint8)
        self._stems = [stem(name) for name in self.names]
        self._masks: dict[tuple[str, ...], npt.NDArray[np.bool_]] = {}
        for row, (name, group) in enumerate(zip(self.names, groups, strict=True)):
            self.role[row] = role(name, group)
            self.group[row] = GROUPS.get(group, Group.OTHER)

    def name(self, op: int) -> str:
        """The function's name."""
        return self.names[op] if 0 <= op < len(self.names) else f"function {op}"

    def ops(self, *stems: str) -> list[int]:
        """The rows of these functions, in every layer."""
        return [row for row, own in enumerate(self._stems) if own in stems]

    def is_op(self, column: npt.NDArray[np.uint16], *stems: str) -> npt.NDArray[np.bool_]:
        """Which calls are calls of these functions."""
        chosen = self._masks.get(stems)
        if chosen is None:
            chosen = self._masks[stems] = np.zeros(max(len(self.names), 1), np.bool_)
            chosen[self.ops(*stems)] = True
        return chosen.take(column, mode="clip")
