"""Words of gputop.frame/1; the document itself is ``gputop.engine.frame.Frame``."""

from __future__ import annotations

from typing import Annotated, TypedDict

from gputop.documents.shared_schema import one_of

GpusSource = Annotated[str, one_of("nvml", "calls", "")]
LinesLookedFor = Annotated[str, one_of("all", "slow", "off")]
GpuUse = Annotated[str, one_of("C", "G", "C+G")]
State = Annotated[str, one_of("running", "runnable", "blocked", "exited")]


class BelongsJson(TypedDict, total=False):
    """Whose a process is beyond its user; each key is there where it is known."""

    pod: str
    namespace: str
    pod_container: str
    job_kind: str
    job_id: str
    job_step: str
    rank: int
    local_rank: int
    world_size: int
