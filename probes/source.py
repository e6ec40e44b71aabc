"""The items of a source, live or from a file: record batches and samples, in order.

A *source* yields items. The engine cannot distinguish a live source from a session file, and recording is
a tee on the items. Within one source a ``Mark`` sample closes a tick: everything that belongs to the
frame of that tick has been yielded before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from probes.schema import Records


@dataclass(frozen=True, slots=True)
class Sample:
    """A slow observation: plain data (str, int, float, bool, None, list, dict) of one kind.

    Kinds and their ``data`` keys are listed in docs/session-format.md; unknown kinds are ignored.
    """

    kind: str
    time_ns: int
    data: dict[str, Any] = field(default_factory=dict)


Item = Records | Sample

# kinds of samples
MARK: Final = "mark"  # closes a tick: lost counters, own CPU use, clock pair, window start
GPUS: Final = "gpus"  # NVML's figures of each GPU
PROCESS: Final = "process"  # facts of a process: name, command, user, start
CLIENT: Final = "client"  # facts of a process that uses a GPU and is not watched
NAMES: Final = "names"  # thread names by tid
OPEN: Final = "open"  # threads that are off-CPU and calls that are under way at the mark
COUNTERS: Final = "counters"  # the kernel's counters of each thread; instead of records, without eBPF
FAULTS: Final = "faults"  # page faults of processes and threads since the last report
MACHINE: Final = "machine"  # the whole machine's losses since the last report
HOST: Final = "host"  # figures of the machine: CPU, load, memory, pressure, disks, network
RESIDENT: Final = "resident"  # memory of watched processes and of other users of GPUs
OTHERS: Final = "others"  # activity since the last mark of processes without records: those of other users
FRAMES: Final = "frames"  # Python stacks that CALL records name
SHAPES: Final = "shapes"  # grids, blocks and shared memory that launches name by a number
PLACES: Final = "places"  # where threads were between two calls: samples, some times a second
FILES: Final = "files"  # kinds of file descriptors on which threads block
APIS: Final = "apis"  # rows of the API table: number -> name, layer
PROBLEM: Final = "problem"  # something that could not be observed, in one sentence
MARKER: Final = "marker"  # a moment that the user has marked, with a note
ACTIVITY: Final = "activity"  # measurements of others: kernels, block I/O; only in imported files
CARRIED: Final = "carried"  # calls from before a recording's start, on which facts about streams rest
HOLE: Final = "hole"  # of the records since the mark before some are not in the file
SUMS: Final = "sums"  # in place of the records since the mark before: their sums
NOTE: Final = "note"  # something that happened to the tracing itself (library attached, NVML hung)

STALE_NS = 2_000_000_000  # a sample of GPUs older than this is not current


class Source(Protocol):
    """Where items come from."""

    @property
    def header(self) -> dict[str, Any]:
        """Facts that hold for the whole session: machine, clock pair, probes, GPUs."""
        ...

    def items(self) -> Iterator[Item]:
        """The items in order. A live source blocks between ticks and ends when it is closed."""
        ...

    def close(self) -> None:
        """Stops observing; ``items`` ends after the events up to now."""
        ...


class Observer(Source, Protocol):
    """A source that observes this machine now."""

    @property
    def alive(self) -> list[int]: ...

    @property
    def probed(self) -> int:
        """How many functions are traced, of all libraries."""
        ...

    def ready(self) -> None:
        """Waits for parts that load after the source has started."""
        ...

    def abandon(self) -> None:
        """Ends at once when ``items`` is iterated no more."""
        ...
