"""The table of traced CUDA runtime, CUDA driver and NCCL functions.

Adding an API is adding a row. A row has the places of its arguments (x86-64 SysV: rdi rsi rdx rcx r8 r9,
then ``[8]``, ``[16]``, … above the return address); the generic BPF program decodes them from the
64-bit cookie that probes/code/cookies.py makes, so no program is specific to a function. A row also has the
function's meaning (probes/api_semantics.py), so that no other code compares names of functions.

Sources: headers and disassembly of CUDA 11.8 to 13.5, NCCL 2.32 (docs/probes.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from probes.api_semantics import Argument, Memory, Role, Trait, usual_role

RUNTIME, DRIVER, NCCL = "runtime", "driver", "nccl"

_VARIANT = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
ShapeAt = Literal["", "dim3", "words", "config"]
MAX_ROWS = 1024  # the cookie's row number has ten bits


@dataclass(frozen=True, slots=True)
class Api:
    """One traced function, all its variants together."""

    name: str  # the symbol without its variant suffix
    layer: str  # runtime, driver or nccl
    # what it does: launch, copy, set, sync, query, alloc, free, host, event, stream, graph, module, device,
    # collective
    group: str
    # where its size lies: ``rdx``; ``rdx<<2``; ``r8*r9``; ``rdi->128*3`` (product of three u64 at that offset
    # of a struct); ``nccl(rdx,rcx)`` (count times the size of a datatype)
    bytes: str = ""
    kind: str = ""  # copy direction: a register, ``[8]``, a constant, or ``rdi->152``
    # a register, ``[16]``, or ``rdi->32``; empty: the default stream of its variant; ``*rdi``: the handle
    # that a successful call leaves there, stream or event
    stream: str = ""
    # a register whose value is kept; ``esi``: its lower half, for flags; ``*rdi``: the address that a
    # successful call leaves there. The text of a row names it after what it is: ``event=rdi``
    aux: str = ""
    argument: Argument = ""  # its meaning: an event, an address of host memory, a device's number, …
    # its effect on memory of the device or of the host; ``stream`` of a map is the address
    memory: Memory = ""
    role: Role = Role.OTHER  # its part in the proof of an empty GPU; by default that of its group
    # how grid, block and shared memory of a launch are passed: two dim3 by value, seven words, or a
    # configuration to which the first argument points
    shape: ShapeAt = ""
    traits: Trait = Trait.NONE  # its other properties: the words of the row without ``=``
    majors: tuple[int, ...] = ()  # library major versions for which this row holds; empty: all
    variant: str = ""  # the suffix for which this row holds, where its arguments differ; empty: all others


# groups whose records also carry the growth of run_delay, nvcsw and nivcsw
COUNTED_GROUPS = frozenset({"copy", "set", "sync", "alloc", "free", "host", "graph", "module"})

# groups whose line of Python is recorded by default
COSTLY_GROUPS = frozenset({"sync", "copy", "alloc", "free", "host", "graph", "collective"})


def _rows(layer: str, group: str, text: str) -> list[Api]:
    """Parses lines of ``name key=value … trait …``."""
    rows = []
    for line in text.strip().splitlines():
        name, *words = line.split()
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        traits = Trait.NONE
        for word in words:
            traits |= Trait.NONE if "=" in word else Trait[word.upper()]
        argument: Argument = next((known for known in get_args(Argument) if known in fields), "")
        majors = tuple(int(major) for major in fields.pop("majors", "").split(",") if major)
        role = Role[fields.pop("role").upper()] if "role" in fields else usual_role(group)
        memory: Memory = next((one for one in get_args(Memory) if one == fields.get("memory", "")), "")
        if fields.pop("memory", "") != memory:
            raise ValueError(f"{name}: nothing is known of such a use of memory")
        shape: ShapeAt = next((one for one in get_args(ShapeAt) if one == fields.get("shape", "")), "")
        if fields.pop("shape", "") != shape:
            raise ValueError(f"{name}: nothing is known of such a shape")
        aux = fields.pop(argument, "")
        rows.append(
            Api(
                name,
                layer,
                group,
                aux=aux,
                argument=argument,
                memory=memory,
                role=role,
                shape=shape,
                traits=traits,
                majors=majors,
                **fields,
            )
        )
    return rows


_RUNTIME: dict[str, str] = {
    "launch": """
        cudaLaunchKernel stream=[16] kernel=rdi shape=dim3 runs minimal
        cudaLaunchKernelExC stream=rdi->32 kernel=rsi shape=config runs minimal
        cudaLaunchCooperativeKernel stream=[16] kernel=rdi shape=dim3 runs minimal
        cudaLaunchHostFunc stream=rdi callback=rsi holds
        cudaStreamAddCallback stream=rdi callback=rsi holds
    """,
    "copy": """
        cudaMemcpy bytes=rdx kind=rcx host=rsi role=copy_sync minimal
        cudaMemcpyAsync bytes=rdx kind=rcx stream=r8 host=rsi minimal
        cudaMemcpy2D bytes=r8*r9 kind=[8] host=rdx role=copy_sync
        cudaMemcpy2DAsync bytes=r8*r9 kind=[8] stream=[16] host=rdx minimal
        cudaMemcpy3D bytes=rdi->128*3 kind=rdi->152 role=copy_sync
        cudaMemcpy3DAsync bytes=rdi->128*3 kind=rdi->152 stream=rsi minimal
        cudaMemcpyPeer bytes=r8 kind=3
        cudaMemcpyPeerAsync bytes=r8 kind=3 stream=r9 minimal
        cudaMemcpyToSymbol bytes=rdx kind=r8 host=rsi role=copy_sync
        cudaMemcpyFromSymbol bytes=rdx kind=r8 host=rdi role=copy_sync
        cudaMemcpyToSymbolAsync bytes=rdx kind=r8 stream=r9 host=rsi
        cudaMemcpyFromSymbolAsync bytes=rdx kind=r8 stream=r9 host=rdi
        cudaMemcpyBatchAsync stream=[24] majors=12
        cudaMemcpyBatchAsync stream=[16] majors=13
        cudaMemcpyWithAttributesAsync bytes=rdx stream=r8 host=rsi
        cudaMemPrefetchAsync bytes=rsi stream=rcx address=rdi majors=11,12
        cudaMemPrefetchAsync bytes=rsi stream=r8 address=rdi majors=13
    """,
    "set": """
        cudaMemset bytes=rdx minimal
        cudaMemsetAsync bytes=rdx stream=rcx minimal
        cudaMemset2D bytes=rcx*r8
        cudaMemset2DAsync bytes=rcx*r8 stream=r9
    """,
    "sync": """
        cudaDeviceSynchronize role=prove_device minimal
        cudaExecutionCtxSynchronize context=rdi
        cudaStreamSynchronize stream=rdi role=prove_stream minimal
        cudaEventSynchronize event=rdi role=prove_event minimal
    """,
    "query": """
        cudaStreamQuery stream=rdi role=prove_stream minimal
        cudaEventQuery event=rdi role=prove_event minimal
        cudaEventElapsedTime event=rdx role=prove_event
    """,
    "event": """
        cudaEventRecord stream=rsi event=rdi role=record minimal
        cudaEventRecordWithFlags stream=rsi event=rdi role=record
        cudaStreamWaitEvent stream=rdi event=rsi role=wait minimal
        cudaEventCreate stream=*rdi role=create_event
        cudaEventCreateWithFlags stream=*rdi flags=esi role=create_event
        cudaEventDestroy event=rdi
    """,
    # all that is ordered in a stream counts as work, which only shortens proofs
    "alloc": """
        cudaMalloc bytes=rsi address=*rdi memory=device minimal
        cudaMallocManaged bytes=rsi address=*rdi memory=managed
        cudaMallocPitch bytes=rdx*rcx address=*rdi memory=device
        cudaMallocAsync bytes=rsi stream=rdx address=*rdi role=enqueue memory=pool minimal
        cudaMallocFromPoolAsync bytes=rsi stream=rcx address=*rdi role=enqueue memory=pool
    """,
    "free": """
        cudaFree address=rdi memory=free waits minimal
        cudaFreeAsync stream=rsi address=rdi role=enqueue memory=free minimal
    """,
    "host": """
        cudaMallocHost bytes=rsi host=*rdi role=host_range memory=pinned
        cudaHostAlloc bytes=rsi host=*rdi role=host_range memory=pinned
        cudaHostRegister bytes=rsi host=rdi role=host_range memory=registered
        cudaFreeHost host=rdi role=host_free memory=free
        cudaHostUnregister host=rdi role=host_free memory=unregister
    """,
    "stream": """
        cudaStreamCreate stream=*rdi role=create_stream
        cudaStreamCreateWithFlags stream=*rdi flags=esi role=create_stream
        cudaStreamCreateWithPriority stream=*rdi flags=esi role=create_stream
        cudaStreamDestroy stream=rdi
        cudaStreamBeginCapture stream=rdi role=capture_begin
        cudaStreamBeginCaptureToGraph stream=rdi role=capture_begin
        cudaStreamBeginRecaptureToGraph stream=rdi role=capture_begin
        cudaStreamEndCapture stream=rdi graph=rsi role=capture_end
    """,
    "graph": """
        cudaGraphLaunch stream=rsi graph=rdi role=enqueue runs minimal
        cudaGraphUpload stream=rsi graph=rdi role=enqueue
        cudaGraphInstantiate graph=*rdi
        cudaGraphInstantiateWithFlags graph=*rdi
        cudaGraphInstantiateWithParams graph=*rdi
        cudaGraphExecUpdate graph=rdi
    """,
    "module": "cudaLibraryLoadData image=rsi",
    "device": """
        cudaSetDevice device=rdi role=set_device minimal
        cudaSetDeviceFlags flags=rdi
        cudaDeviceReset memory=reset
        cudaMemGetInfo size=*rdi memory=room
    """,
}

_DRIVER: dict[str, str] = {
    "launch": """
        cuLaunchKernel stream=[24] kernel=rdi shape=words runs minimal
        cuLaunchKernelEx stream=rdi->32 kernel=rsi shape=config runs minimal
        cuLaunchCooperativeKernel stream=[24] kernel=rdi shape=words runs minimal
        cuLaunchHostFunc stream=rdi callback=rsi holds
        cuStreamAddCallback stream=rdi callback=rsi holds
    """,
    "copy": """
        cuMemcpy bytes=rdx kind=4 host=rsi role=copy_sync
        cuMemcpyAsync bytes=rdx kind=4 stream=rcx host=rsi minimal
        cuMemcpyHtoD bytes=rdx kind=1 host=rsi role=copy_sync minimal
        cuMemcpyDtoH bytes=rdx kind=2 host=rdi role=copy_sync minimal
        cuMemcpyDtoD bytes=rdx kind=3
        cuMemcpyHtoDAsync bytes=rdx kind=1 stream=rcx host=rsi minimal
        cuMemcpyDtoHAsync bytes=rdx kind=2 stream=rcx host=rdi minimal
        cuMemcpyDtoDAsync bytes=rdx kind=3 stream=rcx minimal
        cuMemcpy2D bytes=rdi->112*2 kind=4 role=copy_sync
        cuMemcpy2DUnaligned bytes=rdi->112*2 kind=4 role=copy_sync
        cuMemcpy2DAsync bytes=rdi->112*2 kind=4 stream=rsi
        cuMemcpy3D bytes=rdi->176*3 kind=4 role=copy_sync
        cuMemcpy3DAsync bytes=rdi->176*3 kind=4 stream=rsi
        cuMemcpyPeer bytes=r8 kind=3
        cuMemcpyPeerAsync bytes=r8 kind=3 stream=r9
        cuMemcpyBatchAsync
    """,
    "set": """
        cuMemsetD8 bytes=rdx
        cuMemsetD16 bytes=rdx<<1
        cuMemsetD32 bytes=rdx<<2
        cuMemsetD8Async bytes=rdx stream=rcx minimal
        cuMemsetD16Async bytes=rdx<<1 stream=rcx
        cuMemsetD32Async bytes=rdx<<2 stream=rcx minimal
    """,
    "sync": """
        cuCtxSynchronize role=prove_device minimal
        cuStreamSynchronize stream=rdi role=prove_stream minimal
        cuEventSynchronize event=rdi role=prove_event minimal
    """,
    "query": """
        cuStreamQuery stream=rdi role=prove_stream minimal
        cuEventQuery event=rdi role=prove_event minimal
        cuEventElapsedTime event=rdx role=prove_event
    """,
    "event": """
        cuEventCreate stream=*rdi flags=esi role=create_event
        cuEventDestroy event=rdi
        cuEventRecord stream=rsi event=rdi role=record minimal
        cuEventRecordWithFlags stream=rsi event=rdi role=record
        cuStreamWaitEvent stream=rdi event=rsi role=wait minimal
        cuStreamWaitValue32 stream=rdi address=rsi role=enqueue holds
        cuStreamWaitValue64 stream=rdi address=rsi role=enqueue holds
        cuStreamWriteValue32 stream=rdi address=rsi role=enqueue
        cuStreamWriteValue64 stream=rdi address=rsi role=enqueue
        cuStreamBatchMemOp stream=rdi role=enqueue holds
    """,
    "alloc": """
        cuMemAlloc bytes=rsi address=*rdi memory=device minimal
        cuMemAllocManaged bytes=rsi address=*rdi memory=managed
        cuMemAllocPitch bytes=rdx*rcx address=*rdi memory=device
        cuMemAllocAsync bytes=rsi stream=rdx address=*rdi role=enqueue memory=pool minimal
        cuMemAllocFromPoolAsync bytes=rsi stream=rcx address=*rdi role=enqueue memory=pool
        cuMemCreate bytes=rsi handle=*rdi memory=physical
        cuMemMap bytes=rsi stream=rdi handle=rcx memory=map
        cuMemUnmap bytes=rsi address=rdi memory=unmap
        cuMemSetAccess bytes=rsi
        cuMemRelease handle=rdi memory=release
    """,
    "free": """
        cuMemFree address=rdi memory=free waits minimal
        cuMemFreeAsync stream=rsi address=rdi role=enqueue memory=free minimal
    """,
    "host": """
        cuMemAllocHost bytes=rsi host=*rdi role=host_range memory=pinned
        cuMemHostAlloc bytes=rsi host=*rdi role=host_range memory=pinned
        cuMemHostRegister bytes=rsi host=rdi role=host_range memory=registered
        cuMemFreeHost host=rdi role=host_free memory=free
        cuMemHostUnregister host=rdi role=host_free memory=unregister
    """,
    "stream": """
        cuStreamCreate stream=*rdi flags=esi role=create_stream
        cuStreamCreateWithPriority stream=*rdi flags=esi role=create_stream
        cuStreamDestroy stream=rdi
        cuStreamBeginCapture stream=rdi role=capture_begin
        cuStreamEndCapture stream=rdi graph=rsi role=capture_end
    """,
    "graph": """
        cuGraphLaunch stream=rsi graph=rdi role=enqueue runs minimal
        cuGraphUpload stream=rsi graph=rdi role=enqueue
        cuGraphInstantiate graph=*rdi
        cuGraphInstantiateWithFlags graph=*rdi
        cuGraphInstantiateWithParams graph=*rdi
        cuGraphExecUpdate graph=rdi
    """,
    "module": """
        cuModuleLoadData image=rsi
        cuModuleLoadDataEx image=rsi
        cuLibraryLoadData image=rsi
    """,
    "device": """
        cuDevicePrimaryCtxRetain device=rsi minimal
        cuMemGetInfo size=*rdi memory=room
        cuCtxCreate device=rdx
        cuCtxCreate variant=_v3 device=r8
        cuCtxCreate variant=_v4 device=rcx
    """,
}

_NCCL: dict[str, str] = {
    "collective": """
        ncclAllReduce bytes=nccl(rdx,rcx) stream=[8] communicator=r9 minimal
        ncclReduceScatter bytes=nccl(rdx,rcx) stream=[8] communicator=r9 minimal
        ncclAllGather bytes=nccl(rdx,rcx) stream=r9 communicator=r8 minimal
        ncclAlltoAll bytes=nccl(rdx,rcx) stream=r9 communicator=r8 minimal
        ncclBroadcast bytes=nccl(rdx,rcx) stream=[8] communicator=r9 minimal
        ncclGather bytes=nccl(rdx,rcx) stream=[8] communicator=r9 minimal
        ncclScatter bytes=nccl(rdx,rcx) stream=[8] communicator=r9 minimal
        ncclBcast bytes=nccl(rsi,rdx) stream=r9 communicator=r8 minimal
        ncclReduce bytes=nccl(rdx,rcx) stream=[16] minimal
        ncclSend bytes=nccl(rsi,rdx) stream=r9 communicator=r8 minimal
        ncclRecv bytes=nccl(rsi,rdx) stream=r9 communicator=r8 minimal
        ncclGroupStart role=bracket minimal
        ncclGroupEnd role=bracket minimal
    """
}


def _table() -> tuple[Api, ...]:
    rows: list[Api] = []
    for layer, groups in ((RUNTIME, _RUNTIME), (DRIVER, _DRIVER), (NCCL, _NCCL)):
        for group, text in groups.items():
            rows += _rows(layer, group, text)
    return tuple(rows)


TABLE: tuple[Api, ...] = _table()

# One op number for each name; rows of one name that differ by library version share it.
NAMES: tuple[str, ...] = tuple(dict.fromkeys(api.name for api in TABLE))
OP_OF: dict[str, int] = {name: op for op, name in enumerate(NAMES)}
BY_OP: tuple[Api, ...] = tuple(next(api for api in TABLE if api.name == name) for name in NAMES)
_BY_NAME: dict[str, list[Api]] = {}
for _row in TABLE:
    _BY_NAME.setdefault(_row.name, []).append(_row)
assert len(NAMES) <= MAX_ROWS


def base_name(symbol: str) -> str:
    """``cuMemcpyHtoDAsync_v2_ptsz`` -> ``cuMemcpyHtoDAsync``; NCCL's ``pnccl…`` aliases -> ``nccl…``."""
    stripped = _VARIANT.sub("", symbol)
    return stripped[1:] if stripped.startswith("pnccl") else stripped


def find(symbol: str, layer: str, major: int) -> Api | None:
    """The row for an exported symbol of a library of ``layer`` and ``major`` version, if traced.

    A major version that the table does not know (0, or newer) has the row of the newest one.
    """
    name = base_name(symbol)
    rows = [api for api in _BY_NAME.get(name, ()) if api.layer == layer]
    rows = [api for api in rows if api.variant and symbol.endswith(api.variant)] or [
        api for api in rows if not api.variant
    ]
    exact = [api for api in rows if not api.majors or major in api.majors]
    return exact[0] if exact else (rows[-1] if rows else None)


def is_per_thread(symbol: str) -> bool:
    """True if the variant uses the per-thread default stream where no stream is named."""
    return symbol.endswith(("_ptsz", "_ptds"))
