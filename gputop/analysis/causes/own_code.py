"""Whether the submitting thread launches in a gap or does other work: by its samples and its pace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from gputop.analysis.causes.launch_sites import own_work
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.thread_places import samples_in
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.call_context import line_numbers, stacks_where
from gputop.analysis.evidence.columns import Ints, Mask
from gputop.analysis.evidence.evidence import Column, Evidence
from gputop.engine.calls.frameworks import Framework, frameworks_of_file

FAR = 10  # times as long as from one launch of the thread to the next: no gap between launches
FASTEST_NS = 5000  # from one launch to the next, of who launches from Python: what is quicker is native code
LEAST_PAIRS = 20  # of launches, for a thread to have a pace
LEAST_SAMPLES = 3  # fewer may have met anything
MOSTLY = 0.5  # of the samples
_CUDA: Final = re.compile(r"/lib(?:cuda|nccl|cublas|cudnn|cupti|cufft|cusparse|cusolver)[^/]*\.so")


@dataclass(frozen=True, slots=True)
class OwnCode:
    """A row for each gap.

    Attributes:
        own: Whether what the submitting thread does there is no launching.
        works_ns: For how long it works there between its calls.
        pace_ns: How long it usually takes from one launch to the next; 0 where that is not known.
        met: Samples that met it at that place, in all gaps that are ended from there.
        met_own: Those of them that are in no framework's code.
    """

    own: Mask
    works_ns: Ints
    pace_ns: Ints
    met: Ints
    met_own: Ints


def own_code(scene: AttributionContext) -> OwnCode:
    """What the submitting thread does in each gap between its calls.

    Launching takes about as long from launch to launch, and most of that is in a framework's code, wherever
    the program calls it. A gap that is much longer, and in which samples meet the thread in code of the
    program or in a library that launches nothing, is other work. How long that takes does not matter.
    """
    return scene.once("own code", lambda: _find(scene))


def own_short(scene: AttributionContext, begin: Ints, end: Ints, refilled_by: Ints, thread: Ints) -> Mask:
    """Gaps that are not followed one by one, but too long for a launch as those that end at the same line.

    Args:
        scene: Everything.
        begin, end: The gaps.
        refilled_by: The call that ends each; -1 where there is none.
        thread: The thread of that call.
    """
    found, gaps, calls = own_code(scene), scene.gaps, scene.evidence.calls
    own = np.flatnonzero(found.own & (gaps.refilled_by >= 0))
    if not len(own) or not len(begin):
        return np.zeros(len(begin), np.bool_)
    rows = np.append(gaps.refilled_by[own], np.maximum(refilled_by, 0))
    line = line_numbers(scene.evidence, calls["stack"][rows])
    site = np.append(gaps.thread[own], thread).astype(np.int64) << 32 | (line + 1)
    far = np.maximum(FAR * _pace(scene.evidence)[thread], FASTEST_NS)
    alike: Mask = np.isin(site[len(own) :], site[: len(own)])
    return alike & (refilled_by >= 0) & (end - begin >= far)


def _find(scene: AttributionContext) -> OwnCode:
    gaps, evidence = scene.gaps, scene.evidence
    works = own_work(scene) & scene.inside(Group.OTHER) & ~scene.unrecorded
    works_ns = scene.gap_ns(works)
    pace = _pace(evidence)[gaps.thread] if len(gaps) else works_ns
    far = works_ns >= FAR * pace
    site = _sites(scene, far)
    segment, met = samples_in(scene, np.flatnonzero(works))
    where = site[scene.segments.gap[segment]]
    own = _in_no_framework(evidence, evidence.places["stack"][met]) if len(met) else np.zeros(0, np.bool_)
    seen = np.bincount(where, minlength=len(gaps))[site]
    seen_own = np.bincount(where[own], minlength=len(gaps))[site]
    found = far & (seen >= LEAST_SAMPLES) & (seen_own > MOSTLY * seen)
    return OwnCode(found, works_ns, pace, seen, seen_own)


def _sites(scene: AttributionContext, far: Mask) -> Ints:
    """A number for each gap: the same where one thread ends it at the same line, by far too late or not."""
    gaps, calls = scene.gaps, scene.evidence.calls
    if not len(gaps) or not len(calls):
        return np.zeros(len(gaps), np.int64)
    line = line_numbers(scene.evidence, calls["stack"][np.maximum(gaps.refilled_by, 0)])
    line = np.where(gaps.refilled_by >= 0, line, -1)
    place = np.stack([gaps.thread.astype(np.int64), line, far.astype(np.int64)])
    _places, number = np.unique(place, axis=1, return_inverse=True)
    return number.reshape(-1).astype(np.int64)


def _pace(evidence: Evidence) -> Ints:
    """The usual time of each thread from one launch to the next, ns; 0 of those that launch seldom."""
    calls = evidence.calls
    pace = np.zeros(len(evidence.threads.tid), np.int64)
    launches = evidence.group(calls) == Group.LAUNCH
    both = np.flatnonzero(launches[1:] & launches[:-1] & (calls["row"][1:] == calls["row"][:-1]))
    between = np.maximum(calls["begin"][both + 1] - calls["end"][both], 0)
    bounds = np.searchsorted(calls["row"][both], np.arange(len(pace) + 1)).tolist()  # calls are by thread
    for thread, (low, high) in enumerate(pairwise(bounds)):
        if high - low >= LEAST_PAIRS:
            pace[thread] = max(int(np.median(between[low:high])), FASTEST_NS)
    return pace


def _in_no_framework(evidence: Evidence, stacks: Column) -> Mask:
    """Which samples are in code that launches nothing: by the innermost Python, else by native code."""

    def own(stack: int) -> bool:
        frames = [frame for frame in evidence.facts.stacks.frames(stack) if frame.file]
        innermost = next((frame for frame in frames if not frame.is_native), next(iter(frames), None))
        if innermost is None or frameworks_of_file(innermost.file) - {Framework.PYTHON}:
            return False
        return _CUDA.search(innermost.file) is None

    return np.isin(stacks, stacks_where(stacks, own))
