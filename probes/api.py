"""The table of traced CUDA runtime, CUDA driver and NCCL functions.

Adding an API is adding a row. A row says where its arguments lie (x86-64 SysV: rdi rsi rdx rcx r8 r9,
then ``[8]``, ``[16]``, … above the return address); the generic BPF program decodes them from the
64-bit cookie that probes/code/cookies.py makes, so no program is specific to a function.

Sources: headers and disassembly of CUDA 11.8 to 13.5, NCCL 2.32 (docs/probes.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RUNTIME, DRIVER, NCCL = "runtime", "driver", "nccl"

H2D, D2H, D2D = "1", "2", "3"  # cudaMemcpyKind

_VARIANT = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
MAX_ROWS = 1024  # the cookie's row number has ten bits


@dataclass(frozen=True, slots=True)
class Api:
    """One traced function, all its variants together.

    Attributes:
        name: The symbol without its variant suffix.
        layer: runtime, driver or nccl.
        group: What it does: launch, copy, set, sync, query, alloc, free, host, event, stream, graph,
            module, device, collective.
        bytes: Where its size lies: ``rdx``; ``rdx<<2``; ``r8*r9``; ``rdi->128*3`` (product of three
            u64 at that offset of a struct); ``nccl(rdx,rcx)`` (count times the size of a datatype).
        kind: Copy direction: a register, ``[8]``, a constant, or ``rdi->152``.
        stream: A register, ``[16]``, or ``rdi->32``; empty: the default stream of its variant;
            ``*rdi``: the handle that a successful call leaves there, stream or event.
        aux: A register whose value is kept: event handle, host address or device number; ``esi``: its
            lower half, for flags; ``*rdi``: the address that a successful call leaves there.
        majors: Library major versions for which this row holds; empty: all.
        variant: The suffix for which this row holds, where its arguments differ; empty: all others.
    """

    name: str
    layer: str
    group: str
    bytes: str = ""
    kind: str = ""
    stream: str = ""
    aux: str = ""
    majors: tuple[int, ...] = ()
    variant: str = ""


# groups whose records also carry the growth of run_delay, nvcsw and nivcsw
COUNTED_GROUPS = frozenset({"copy", "set", "sync", "alloc", "free", "host", "graph", "module"})

# groups whose line of Python is looked for, unless another choice was made
COSTLY_GROUPS = frozenset({"sync", "copy", "alloc", "free", "host", "graph"})


def _rows(layer: str, group: str, text: str) -> list[Api]:
    """Parses lines of ``name key=value …``."""
    rows = []
    for line in text.strip().splitlines():
        name, *pairs = line.split()
        fields = dict(pair.split("=", 1) for pair in pairs)
        majors = tuple(int(major) for major in fields.pop("majors", "").split(",") if major)
        rows.append(Api(name, layer, group, majors=majors, **fields))
    return rows


_RUNTIME: dict[str, str] = {
    "launch": """
        cudaLaunchKernel stream=[16] aux=rdi
        cudaLaunchKernelExC stream=rdi->32 aux=rsi
        cudaLaunchCooperativeKernel stream=[16] aux=rdi
        cudaLaunchHostFunc stream=rdi aux=rsi
        cudaStreamAddCallback stream=rdi aux=rsi
    """,
    "copy": """
        cudaMemcpy bytes=rdx kind=rcx aux=rsi
        cudaMemcpyAsync bytes=rdx kind=rcx stream=r8 aux=rsi
        cudaMemcpy2D bytes=r8*r9 kind=[8] aux=rdx
        cudaMemcpy2DAsync bytes=r8*r9 kind=[8] stream=[16] aux=rdx
        cudaMemcpy3D bytes=rdi->128*3 kind=rdi->152
        cudaMemcpy3DAsync bytes=rdi->128*3 kind=rdi->152 stream=rsi
        cudaMemcpyPeer bytes=r8 kind=3
        cudaMemcpyPeerAsync bytes=r8 kind=3 stream=r9
        cudaMemcpyToSymbol bytes=rdx kind=r8 aux=rsi
        cudaMemcpyFromSymbol bytes=rdx kind=r8 aux=rdi
        cudaMemcpyToSymbolAsync bytes=rdx kind=r8 stream=r9 aux=rsi
        cudaMemcpyFromSymbolAsync bytes=rdx kind=r8 stream=r9 aux=rdi
        cudaMemcpyBatchAsync stream=[24] majors=12
        cudaMemcpyBatchAsync stream=[16] majors=13
        cudaMemcpyWithAttributesAsync bytes=rdx stream=r8 aux=rsi
        cudaMemPrefetchAsync bytes=rsi stream=rcx aux=rdi majors=11,12
        cudaMemPrefetchAsync bytes=rsi stream=r8 aux=rdi majors=13
    """,
    "set": """
        cudaMemset bytes=rdx
        cudaMemsetAsync bytes=rdx stream=rcx
        cudaMemset2D bytes=rcx*r8
        cudaMemset2DAsync bytes=rcx*r8 stream=r9
    """,
    "sync": """
        cudaDeviceSynchronize
        cudaExecutionCtxSynchronize aux=rdi
        cudaStreamSynchronize stream=rdi
        cudaEventSynchronize aux=rdi
    """,
    "query": """
        cudaStreamQuery stream=rdi
        cudaEventQuery aux=rdi
        cudaEventElapsedTime aux=rdx
    """,
    "event": """
        cudaEventRecord stream=rsi aux=rdi
        cudaEventRecordWithFlags stream=rsi aux=rdi
        cudaStreamWaitEvent stream=rdi aux=rsi
        cudaEventCreate stream=*rdi
        cudaEventCreateWithFlags stream=*rdi aux=esi
        cudaEventDestroy aux=rdi
    """,
    "alloc": """
        cudaMalloc bytes=rsi
        cudaMallocManaged bytes=rsi
        cudaMallocPitch bytes=rdx*rcx
        cudaMallocAsync bytes=rsi stream=rdx
        cudaMallocFromPoolAsync bytes=rsi stream=rcx
    """,
    "free": """
        cudaFree aux=rdi
        cudaFreeAsync stream=rsi aux=rdi
    """,
    "host": """
        cudaMallocHost bytes=rsi aux=*rdi
        cudaHostAlloc bytes=rsi aux=*rdi
        cudaHostRegister bytes=rsi aux=rdi
        cudaFreeHost aux=rdi
        cudaHostUnregister aux=rdi
    """,
    "stream": """
        cudaStreamCreate stream=*rdi
        cudaStreamCreateWithFlags stream=*rdi aux=esi
        cudaStreamCreateWithPriority stream=*rdi aux=esi
        cudaStreamDestroy stream=rdi
        cudaStreamBeginCapture stream=rdi
        cudaStreamBeginCaptureToGraph stream=rdi
        cudaStreamBeginRecaptureToGraph stream=rdi
        cudaStreamEndCapture stream=rdi aux=rsi
    """,
    "graph": """
        cudaGraphLaunch stream=rsi aux=rdi
        cudaGraphUpload stream=rsi aux=rdi
        cudaGraphInstantiate aux=rsi
        cudaGraphInstantiateWithFlags aux=rsi
        cudaGraphInstantiateWithParams aux=rsi
        cudaGraphExecUpdate aux=rdi
    """,
    "module": "cudaLibraryLoadData aux=rsi",
    "device": """
        cudaSetDevice aux=rdi
        cudaSetDeviceFlags aux=rdi
        cudaDeviceReset
    """,
}

_DRIVER: dict[str, str] = {
    "launch": """
        cuLaunchKernel stream=[24] aux=rdi
        cuLaunchKernelEx stream=rdi->32 aux=rsi
        cuLaunchCooperativeKernel stream=[24] aux=rdi
        cuLaunchHostFunc stream=rdi aux=rsi
        cuStreamAddCallback stream=rdi aux=rsi
    """,
    "copy": """
        cuMemcpy bytes=rdx kind=4 aux=rsi
        cuMemcpyAsync bytes=rdx kind=4 stream=rcx aux=rsi
        cuMemcpyHtoD bytes=rdx kind=1 aux=rsi
        cuMemcpyDtoH bytes=rdx kind=2 aux=rdi
        cuMemcpyDtoD bytes=rdx kind=3
        cuMemcpyHtoDAsync bytes=rdx kind=1 stream=rcx aux=rsi
        cuMemcpyDtoHAsync bytes=rdx kind=2 stream=rcx aux=rdi
        cuMemcpyDtoDAsync bytes=rdx kind=3 stream=rcx
        cuMemcpy2D bytes=rdi->112*2 kind=4
        cuMemcpy2DUnaligned bytes=rdi->112*2 kind=4
        cuMemcpy2DAsync bytes=rdi->112*2 kind=4 stream=rsi
        cuMemcpy3D bytes=rdi->176*3 kind=4
        cuMemcpy3DAsync bytes=rdi->176*3 kind=4 stream=rsi
        cuMemcpyPeer bytes=r8 kind=3
        cuMemcpyPeerAsync bytes=r8 kind=3 stream=r9
        cuMemcpyBatchAsync
    """,
    "set": """
        cuMemsetD8 bytes=rdx
        cuMemsetD16 bytes=rdx<<1
        cuMemsetD32 bytes=rdx<<2
        cuMemsetD8Async bytes=rdx stream=rcx
        cuMemsetD16Async bytes=rdx<<1 stream=rcx
        cuMemsetD32Async bytes=rdx<<2 stream=rcx
    """,
    "sync": """
        cuCtxSynchronize
        cuStreamSynchronize stream=rdi
        cuEventSynchronize aux=rdi
    """,
    "query": """
        cuStreamQuery stream=rdi
        cuEventQuery aux=rdi
        cuEventElapsedTime aux=rdx
    """,
    "event": """
        cuEventCreate stream=*rdi aux=esi
        cuEventDestroy aux=rdi
        cuEventRecord stream=rsi aux=rdi
        cuEventRecordWithFlags stream=rsi aux=rdi
        cuStreamWaitEvent stream=rdi aux=rsi
        cuStreamWaitValue32 stream=rdi aux=rsi
        cuStreamWaitValue64 stream=rdi aux=rsi
        cuStreamWriteValue32 stream=rdi aux=rsi
        cuStreamWriteValue64 stream=rdi aux=rsi
        cuStreamBatchMemOp stream=rdi
    """,
    "alloc": """
        cuMemAlloc bytes=rsi
        cuMemAllocManaged bytes=rsi
        cuMemAllocPitch bytes=rdx*rcx
        cuMemAllocAsync bytes=rsi stream=rdx
        cuMemAllocFromPoolAsync bytes=rsi stream=rcx
        cuMemCreate bytes=rsi
        cuMemMap bytes=rsi
        cuMemUnmap bytes=rsi
        cuMemSetAccess bytes=rsi
        cuMemRelease
    """,
    "free": """
        cuMemFree aux=rdi
        cuMemFreeAsync stream=rsi aux=rdi
    """,
    "host": """
        cuMemAllocHost bytes=rsi aux=*rdi
        cuMemHostAlloc bytes=rsi aux=*rdi
        cuMemHostRegister bytes=rsi aux=rdi
        cuMemFreeHost aux=rdi
        cuMemHostUnregister aux=rdi
    """,
    "stream": """
        cuStreamCreate stream=*rdi aux=esi
        cuStreamCreateWithPriority stream=*rdi aux=esi
        cuStreamDestroy stream=rdi
        cuStreamBeginCapture stream=rdi
        cuStreamEndCapture stream=rdi aux=rsi
    """,
    "graph": """
        cuGraphLaunch stream=rsi aux=rdi
        cuGraphUpload stream=rsi aux=rdi
        cuGraphInstantiate aux=rsi
        cuGraphInstantiateWithFlags aux=rsi
        cuGraphInstantiateWithParams aux=rsi
        cuGraphExecUpdate aux=rdi
    """,
    "module": """
        cuModuleLoadData aux=rsi
        cuModuleLoadDataEx aux=rsi
        cuLibraryLoadData aux=rsi
    """,
    "device": """
        cuDevicePrimaryCtxRetain aux=rsi
        cuCtxCreate aux=rdx
        cuCtxCreate variant=_v3 aux=r8
        cuCtxCreate variant=_v4 aux=rcx
    """,
}

_NCCL: dict[str, str] = {
    "collective": """
        ncclAllReduce bytes=nccl(rdx,rcx) stream=[8] aux=r9
        ncclReduceScatter bytes=nccl(rdx,rcx) stream=[8] aux=r9
        ncclAllGather bytes=nccl(rdx,rcx) stream=r9 aux=r8
        ncclAlltoAll bytes=nccl(rdx,rcx) stream=r9 aux=r8
        ncclBroadcast bytes=nccl(rdx,rcx) stream=[8] aux=r9
        ncclGather bytes=nccl(rdx,rcx) stream=[8] aux=r9
        ncclScatter bytes=nccl(rdx,rcx) stream=[8] aux=r9
        ncclBcast bytes=nccl(rsi,rdx) stream=r9 aux=r8
        ncclReduce bytes=nccl(rdx,rcx) stream=[16]
        ncclSend bytes=nccl(rsi,rdx) stream=r9 aux=r8
        ncclRecv bytes=nccl(rsi,rdx) stream=r9 aux=r8
        ncclGroupStart
        ncclGroupEnd
    """,
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

    A major version that the table does not know (0, or newer) takes the row of the newest one.
    """
    name = base_name(symbol)
    rows = [api for api in _BY_NAME.get(name, ()) if api.layer == layer]
    rows = [api for api in rows if api.variant and symbol.endswith(api.variant)] or [
        api for api in rows if not api.variant
    ]
    exact = [api for api in rows if not api.majors or major in api.majors]
    return exact[0] if exact else (rows[-1] if rows else None)


def is_per_thread(symbol: str) -> bool:
    """Whether the variant takes the per-thread default stream where no stream is named."""
    return symbol.endswith(("_ptsz", "_ptds"))
