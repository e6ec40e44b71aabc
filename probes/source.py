"""What observes the machine hands over, live or from a file: record batches and samples, in order.

A *source* yields items. The engine cannot tell a live source from a session file, and recording is
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
GPUS: Final = "gpus"  # what NVML reported of each GPU
PROCESS: Final = "process"  # facts of a process: name, command, user, start
CLIENT: Final = "client"  # facts of a process that uses a GPU and is not watched
NAMES: Final = "names"  # thread names by tid
OPEN: Final = "open"  # threads that are off-CPU and calls that are under way at the mark
COUNTERS: Final = "counters"  # what the kernel has counted of each thread; instead of records, without eBPF
FAULTS: Final = "faults"  # page faults of processes and threads since the last report
MACHINE: Final = "machine"  # what the machine as a whole lost time by, since the last report
HOST: Final = "host"  # figures of the machine: CPU, load, memory, pressure, disks, network
RESIDENT: Final = "resident"  # memory of watched processes and of other users of GPUs
OTHERS: Final = (
    "others"  # what processes did since the last mark of which no records are reported: those of other users
)
FRAMES: Final = "frames"  # Python stacks that CALL records name
SHAPES: Final = "shapes"  # grids, blocks and shared memory that launches name by a number
PLACES: Final = "places"  # where threads were between two calls: looks at them, some times a second
FILES: Final = "files"  # what the file descriptors are on which threads block
APIS: Final = "apis"  # rows of the API table: number -> name, layer
PROBLEM: Final = "problem"  # something that could not be observed, in one sentence
MARKER: Final = "marker"  # a moment that the user has marked, with a note
ACTIVITY: Final = "activity"  # what others measured: kernels, block I/O; only in files that were imported
CARRIED: Final = "carried"  # calls from before a recording's start, on which what is known of streams rests
HOLE: Final = "hole"  # of the records since the mark before some are not in the file
SUMS: Final = "sums"  # in place of the records since the mark before: what they add up to
NOTE: Final = "note"  # something that happened to the tracing itself (library attached, NVML hung)

STALE_NS = 2_000_000_000  # a sample of GPUs older than this says nothing about now


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
        """Stop observing; ``items`` ends after what was already seen."""
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
        """Waits for what is still being loaded after the source has started."""
        ...

    def abandon(self) -> None:
        """Ends at once when ``items`` is iterated no more."""
        ...
