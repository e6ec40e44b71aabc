"""A thin ctypes binding of NCCL for test programs; it knows nothing of the simulation."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

FLOAT, SUM = 7, 0


class UniqueId(ctypes.Structure):
    """What the ranks of a communicator have in common."""

    _fields_ = (("text", ctypes.c_char * 128),)


class Nccl:
    """The library; functions return their error code unless the name says otherwise."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libnccl.so.2")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lib, "nccl" + name)

    def unique_id(self) -> UniqueId:
        """Makes an id."""
        out = UniqueId()
        assert self.GetUniqueId(ctypes.byref(out)) == 0
        return out

    def join(self, rank: int, ranks: int, shared: UniqueId | str) -> ctypes.c_void_p:
        """Joins as a rank; the id may be in a file, which rank 0 writes."""
        if isinstance(shared, str):
            shared = self._exchange(Path(shared), rank)
        comm = ctypes.c_void_p()
        assert self.CommInitRank(ctypes.byref(comm), ranks, shared, rank) == 0
        return comm

    def _exchange(self, path: Path, rank: int) -> UniqueId:
        if rank == 0:
            own = self.unique_id()
            part = path.with_suffix(".part")
            part.write_bytes(bytes(own))
            part.rename(path)
            return own
        while not path.exists():
            time.sleep(0.002)
        return UniqueId.from_buffer_copy(path.read_bytes())

    def all_reduce(self, comm: Any, stream: Any, count: int = 1) -> int:
        """Adds floats of all ranks."""
        code: int = self.AllReduce(None, None, ctypes.c_size_t(count), FLOAT, SUM, comm, stream)
        return code

    def rank_from_environment(self) -> tuple[int, int, ctypes.c_void_p]:
        """Joins as RANK of WORLD with the id in the file ID."""
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD"])
        return rank, ranks, self.join(rank, ranks, os.environ["ID"])
