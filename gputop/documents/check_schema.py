"""gputop.check/1: the observability of this machine."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from gputop.documents.shared_schema import Layer, one_of

FAMILIES = ("kernel", "rights", "bcc", "tracing", "libraries", "python", "native", "nvml")
Family = Annotated[str, one_of(*FAMILIES)]
Status = Annotated[str, one_of("ok", "missing", "note")]
AttachPath = Annotated[str, one_of("uprobe_multi", "perf", "untried", "none")]
Linkage = Annotated[str, one_of("shared", "static", "static, stripped")]
Site = Annotated[str, one_of("cheap", "single-stepped")]


class FactJson(TypedDict):
    """A line of the text."""

    family: Family
    status: Status
    text: str
    fix: str
    blocks: bool


class CheckedKernelJson(TypedDict):
    """The kernel."""

    release: str
    architecture: str
    path: AttachPath
    problem: str
    forced: str
    btf: str
    btf_error: str
    sys_masked: bool
    tracefs: str


class RightsJson(TypedDict):
    """The rights of this process."""

    root: bool
    cap_bpf: bool
    cap_perfmon: bool
    cap_sys_admin: bool
    cap_sys_ptrace: bool
    effective: int
    initial_user_namespace: bool
    lockdown: str
    perf_event_paranoid: int | None
    unprivileged_bpf_disabled: int | None
    btf: bool
    seccomp: int
    no_new_privileges: bool
    hidepid: bool
    tracefs: bool
    bcc: str


class BccJson(TypedDict):
    """The compiler of the probes."""

    path: str
    version: str
    library: str
    error: str
    unrelated: str


class TracingJson(TypedDict):
    """The result of loading and attaching."""

    tried: bool
    loaded_ms: float | None
    cached: bool
    cache: str
    cache_problem: str
    tracepoints: int
    refusals: list[str]
    error: str
    log: list[str]


class SymbolJson(TypedDict):
    """A function of a library that is probed."""

    name: str
    offset: int
    site: Site
    hits: int | None


class SelfHitJson(TypedDict):
    """A function that the check called, and its counted calls."""

    symbol: str
    calls: int
    counted: int
    error: str


class CheckedLibraryJson(TypedDict):
    """A library of CUDA or NCCL, each file once."""

    path: str
    device: str
    inode: int
    build_id: str
    soname: str
    version: str
    layer: Layer
    linkage: Linkage
    pids: list[int]
    error: str
    symbols: list[SymbolJson]
    self_hit: SelfHitJson | None


class PythonJson(TypedDict):
    """An interpreter."""

    path: str
    version: str
    pids: list[int]
    problem: str


class NativeJson(TypedDict):
    """A program without Python that has a CUDA library mapped."""

    path: str
    pids: list[int]
    functions: int
    frame_pointers: float


class NvmlGpuJson(TypedDict):
    """A GPU that NVML lists."""

    index: int
    name: str
    uuid: str
    unavailable: dict[str, str]
    lost: str


class NvmlJson(TypedDict):
    """NVML, the driver, the GPUs."""

    library: str
    driver: str
    gpus: list[NvmlGpuJson]
    error: str


class CheckDocument(TypedDict):
    """The observability of this machine."""

    schema: Literal["gputop.check/1"]
    version: str
    live: bool
    distribution: str
    facts: list[FactJson]
    kernel: CheckedKernelJson
    rights: RightsJson
    bcc: BccJson
    tracing: TracingJson
    libraries: list[CheckedLibraryJson]
    python: list[PythonJson]
    native: list[NativeJson]
    nvml: NvmlJson
