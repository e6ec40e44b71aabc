"""Chrome traces of torch.profiler (Kineto) of all generations: calls of CUDA and HIP, kernels, operators.

Times are µs: since 1970, at a double's precision of a quarter µs, or since ``baseTimeNanoseconds``, exact to
the ns. GPU rows have the GPU as ``pid`` and the stream as ``tid``; ``correlation`` links them to their call.
Until 2021 categories were written differently (``Kernel``, ``Runtime``, ``Operator``), and thread numbers as
text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from gputop.analysis.evidence.api_classes import (
    COPY,
    FILL,
    GPU_RANGE,
    KERNEL,
    OPERATOR,
    OVERHEAD,
    PYTHON,
    RANGE,
    WAIT,
)
from gputop.api.foreign_files import named
from gputop.imports.gathered import GatheredTrace, gpu_facts
from gputop.imports.json_events import JsonEvents
from gputop.imports.names import FRAME_KINDS, bytes_of, cleaned, collective_of, cuda_name, python_name
from gputop.imports.opened import unpacked
from gputop.imports.sqlite_tables import whole

_CALLS: Final = frozenset({"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver"})
_ON_GPU: Final = {
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "memcpy": COPY,
    "gpu_memset": FILL,
    "memset": FILL,
    "gpu_user_annotation": GPU_RANGE,
    "cuda_sync": WAIT,
}
_ON_HOST: Final = {
    "cpu_op": OPERATOR,
    "operator": OPERATOR,
    "user_annotation": RANGE,
    "python_function": PYTHON,
    "overhead": OVERHEAD,
}
_OTHER_HARDWARE: Final = re.compile(r"(mtia|xpu|privateuse1|hpu)_")
_RANGES: Final = ("ProfilerStep", "enumerate(DataLoader)", "Optimizer.", "nccl:", "DistributedDataParallel.")
_DIRECTIONS: Final = (("HtoD", 1), ("DtoH", 2), ("DtoD", 3), ("PtoP", 3))
_MEMORY: Final = (("Pageable", 0), ("Pinned", 1), ("Managed", 4))
_PARAMETERS: Final = "record_param_comms"
_RANKS: Final = 1 << 16  # of a job, at most
_NONE: Final = (1 << 32) - 1  # a stream that CUPTI does not name
_NO_SWITCHES: Final = (
    "torch.profiler records no switches: whether a thread ran, waited for a CPU or slept is not known; its "
    "own cost is in the times"
)
_COARSE: Final = "the trace has no baseTimeNanoseconds: its times are microseconds since 1970 {}"


def read_chrome(path: str, folder: str | None = None) -> GatheredTrace:
    """Return the parts of such a trace that gputop understands.

    Args:
        folder: For temporary files.

    Raises:
        ImportFileError: It is damaged, or holds no events.
    """
    trace = GatheredTrace("kineto", folder)
    reader = _Reader(trace)
    with unpacked(path) as pieces:
        events = JsonEvents(path, pieces)
        for some in events:
            for event in some:
                if isinstance(event, dict):
                    reader.consume(event)
            trace.settle()
        if events.controls:
            trace.problems.append(
                f"{events.controls} control characters in the trace were replaced by spaces"
            )
        reader.finish(events.beside)
    return trace


_Collective = tuple[int, int, int, int, str, int, int]  # begin, end, pid, tid, function, bytes, group


class _Reader:
    """Consumes events."""

    def __init__(self, trace: GatheredTrace) -> None:
        self._trace = trace
        self._skipped = 0
        self._hip = self._elsewhere = self._doubles = False
        self._kinds: Counter[str] = Counter()
        self._pids: set[int] = set()
        self._names: dict[int, str] = {}
        self._reported: list[_Collective] = []  # from PyTorch's own records
        self._named: list[_Collective] = []  # by the names of ranges, in older traces

    def consume(self, event: dict[str, Any]) -> None:
        phase = event.get("ph")
        if phase == "M":
            self._name(event)
        if phase != "X":
            return
        category = str(event.get("cat", ""))
        self._kinds[category] += 1
        kind = category.lower()
        begin, length = event.get("ts"), event.get("dur", 0)
        is_call, on_gpu = kind in _CALLS, _ON_GPU.get(kind)
        if not (is_call or on_gpu or kind in _ON_HOST):
            self._elsewhere = self._elsewhere or _OTHER_HARDWARE.match(kind) is not None
            return
        if not _is_time(begin) or not _is_time(length) or length < 0:
            self._skipped += 1
            return
        self._doubles = self._doubles or type(begin) is float
        at = _ns(begin)
        end, name = at + _ns(length), str(event.get("name", ""))
        more = event.get("args")
        args: dict[str, Any] = more if isinstance(more, dict) else {}
        if on_gpu:
            self._add_work(on_gpu, at, end, name, event, args)
            return
        pid, tid = _number(event.get("pid")), _number(event.get("tid"))
        if pid < 0:
            self._on_host(_ON_HOST.get(kind, ""), at, end, name, -1, -1, args)
            return
        self._pids.add(pid)
        thread = self._trace.thread(pid, tid)
        if is_call:
            self._call(at, end, pid, thread, name, args)
        else:
            self._on_host(_ON_HOST[kind], at, end, name, pid, thread, args)

    # -- calls --------------------------------------------------------------------------------------------

    def _call(self, at: int, end: int, pid: int, tid: int, name: str, args: dict[str, Any]) -> None:
        known = {"correlation": whole(args.get("correlation"), -1)}
        if name.startswith("hip"):
            self._hip, name = True, cuda_name(name)
            known["bytes"] = max(_number(args.get("size")), 0)
            known["handle"] = _hex(args.get("stream"))
        if name.startswith(("cudaEventRecord", "cuEventRecord")):
            known["aux"] = max(known["correlation"], 0)  # the identifier in events that wait for it
        self._trace.call(at, end, pid, tid, name, **known)

    def _add_work(
        self, what: str, at: int, end: int, name: str, event: dict[str, Any], args: dict[str, Any]
    ) -> None:
        trace = self._trace
        device = whole(args.get("device"), _number(event.get("pid")))
        stream = whole(args.get("stream"), _number(str(event.get("tid", "")).removeprefix("stream ")))
        known = {
            "correlation": whole(args.get("correlation"), -1),
            "device": device if 0 <= device < 1 << 20 else -1,
            "stream": stream if 0 <= stream < _NONE else -1,
        }
        if what == GPU_RANGE:
            trace.activity(what, at, end, cleaned(name), device=known["device"], stream=known["stream"])
            return
        if what == WAIT:
            self._wait(known, args)
        elif what == KERNEL:
            known |= self._kernel(args)
        else:
            known["bytes"] = max(whole(args.get("bytes")), 0)
            if what == COPY:
                known["direction"] = next((one for sign, one in _DIRECTIONS if sign in name), -1)
                known["memory"] = next((one for sign, one in _MEMORY if sign in name), -1)
        trace.add_work(what, at, end, name, **known)

    def _wait(self, known: dict[str, int], args: dict[str, Any]) -> None:
        record = whole(args.get("wait_on_cuda_event_record_corr_id"), -1)
        if record < 0:
            return
        known["event"] = record
        on = whole(args.get("wait_on_stream"), -1)
        # the call that recorded the event was made on that stream
        self._trace.add_work("", 0, 0, correlation=record, stream=on if 0 <= on < _NONE else -1)

    def _kernel(self, args: dict[str, Any]) -> dict[str, int]:
        known: dict[str, int] = {}
        sizes = [*_sizes(args.get("grid")), *_sizes(args.get("block"))]
        if len(sizes) == 6:
            shared = whole(args.get("shared memory"))
            known["shape"] = self._trace.shape((*sizes, shared if 0 <= shared < 1 << 32 else 0))
        graph = whole(args.get("graph id"), 0)
        if graph > 0:
            known["graph"] = graph
        if members := _members(args):
            name = str(args.get("Process Group Name", ""))
            known["group"] = self._trace.communicator(-1, name, members)
        return known

    # -- thread activity -----------------------------------------------------------------------------------

    def _on_host(
        self, what: str, at: int, end: int, name: str, pid: int, tid: int, args: dict[str, Any]
    ) -> None:
        trace, detail = self._trace, ""
        if what == PYTHON:
            name = python_name(name)
        elif what != OVERHEAD:
            name = cleaned(name)
            dims = args.get("Input Dims") or args.get("Input dims")
            detail = str(dims)[:200] if dims and dims != [[]] else ""
        if what == OPERATOR and name.startswith(_RANGES):
            what = RANGE
        if pid >= 0 and name == _PARAMETERS and "Collective name" in args:
            self._collective(
                self._reported, at, end, pid, tid, collective_of(str(args["Collective name"])), args
            )
        elif pid >= 0 and name.startswith("nccl:"):
            self._collective(self._named, at, end, pid, tid, collective_of(name), args)
        trace.activity(what, at, end, name, detail, pid=pid, tid=tid)
        if what in FRAME_KINDS and pid >= 0 and not name.startswith(("ProfilerStep", "PyTorch Profiler")):
            trace.frame(FRAME_KINDS.index(what), at, end, tid, name)

    def _collective(
        self,
        rows: list[_Collective],
        at: int,
        end: int,
        pid: int,
        tid: int,
        function: str,
        args: dict[str, Any],
    ) -> None:
        if function:
            members = _members(args)
            name = str(args.get("Process Group Name", ""))
            group = self._trace.communicator(pid, name, members) if members else 0
            count = max(whole(args.get("In msg nelems")), whole(args.get("Out msg nelems")), 0)
            rows.append((at, end, pid, tid, function, bytes_of(count, str(args.get("dtype", ""))), group))

    def _name(self, event: dict[str, Any]) -> None:
        args, pid = event.get("args"), _number(event.get("pid"))
        if not isinstance(args, dict) or pid < 0:
            return
        name = str(args.get("name", ""))
        if event.get("name") == "process_name":
            self._names[pid] = name
        elif event.get("name") == "thread_name" and (tid := _number(event.get("tid"))) >= 0:
            thread = self._trace.thread(pid, tid)
            self._trace.threads[thread] = (pid, re.sub(r"^thread \d+ \((.*)\)\Z", r"\1", name))

    # -- at the end ---------------------------------------------------------------------------------------

    def finish(self, document: Mapping[str, Any]) -> None:
        """Add data that is known only after all events."""
        trace = self._trace
        base = whole(document.get("baseTimeNanoseconds"), -1)
        trace.realtime_ns = max(base, 0)
        if base < 0:
            trace.notes.append(
                _COARSE.format("as doubles, exact to 250 ns" if self._doubles else "without fractions")
            )
        kinds = [f"{kind} ({count})" for kind, count in self._kinds.most_common()]
        trace.contents = named("category", kinds)
        trace.processes = {pid: {"name": self._names.get(pid) or "python"} for pid in self._pids}
        job = document.get("distributedInfo")
        self._collectives(self._job(job if isinstance(job, dict) else {}))
        devices = document.get("deviceProperties")
        for row in devices if isinstance(devices, list) else ():
            if isinstance(row, dict):
                size = whole(row.get("totalGlobalMem")) or None
                facts = gpu_facts(whole(row.get("id")), str(row.get("name", "")), memory_bytes=size)
                if whole(row.get("numSms")) > 0:
                    facts["multiprocessors"] = whole(row.get("numSms"))
                trace.gpus.append(facts)
        if self._hip:
            trace.header["platform"] = "rocm"
            trace.notes.append("HIP's functions are shown under CUDA's names")
        if self._skipped:
            trace.problems.append(f"{self._skipped} events without a readable time are left out")
        if self._elsewhere:
            trace.notes.append("activity of an accelerator that is neither CUDA's nor ROCm's is left out")
        trace.header["states"] = False
        trace.notes.append(_NO_SWITCHES)

    def _job(self, job: dict[str, Any]) -> int:
        """Set facts of the job; return its number of ranks, 0 if unknown."""
        known = {key: job[key] for key in ("rank", "world_size", "backend") if key in job}
        if known:
            self._trace.header["distributed"] = known
        rank, world = whole(job.get("rank"), -1), whole(job.get("world_size"), 0)
        if rank >= 0:
            for facts in self._trace.processes.values():
                facts["rank"] = rank
                if world > 0:
                    facts["world_size"] = world
        return world if 0 < world <= _RANKS else 0

    def _collectives(self, world: int) -> None:
        """NCCL's calls, from PyTorch's own records."""
        trace = self._trace
        if world:
            trace.whole_job = trace.communicator(-1, "", range(world))
        for at, end, pid, tid, function, size, group in sorted(self._reported or self._named):
            trace.call(at, end, pid, tid, function, bytes=size, aux=group or trace.whole_job)


def _members(args: Mapping[str, Any]) -> list[int]:
    """The ranks of a process group; empty if unknown."""
    size = whole(args.get("Group size"))
    start, stride = whole(args.get("Global rank start"), -1), whole(args.get("Global rank stride"))
    listed = re.findall(r"\d{1,7}", str(args.get("Process Group Ranks", "")))
    if listed and len(listed) == size:
        return [int(one) for one in listed]
    if 0 < size <= _RANKS and start >= 0 and stride > 0:
        return list(range(start, start + size * stride, stride))
    return []


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e19


def _ns(microseconds: Any) -> int:
    return whole(microseconds * 1000) if isinstance(microseconds, int) else whole(round(microseconds * 1000))


def _number(value: Any) -> int:
    """A process or thread, which some generations write as text; -1 if invalid."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 18 else -1
    number = whole(value, -1)
    return number if number < 1 << 60 else -1


def _hex(value: Any) -> int:
    try:
        return int(value, 16) & ((1 << 62) - 1) if isinstance(value, str) else max(whole(value), 0)
    except ValueError:
        return 0


def _sizes(value: Any) -> list[int]:
    sizes = value if isinstance(value, list) else []
    return [int(one) for one in sizes if isinstance(one, int) and 0 < one < 1 << 32][:3]
