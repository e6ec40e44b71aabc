"""Queries on recordings: totals, explanation, comparison; and each as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gputop.api.holes import about_holes, unkept_of
from gputop.api.reading import SILENT, Progress, interrupted, understood
from gputop.api.session import NS, File, Session
from gputop.engine.frame import Frame
from gputop.engine.session_totals import Stats
from gputop.errors import GputopError, OutsideSessionError

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Report
    from gputop.analysis.compare import Diff

# The explanation is imported where it is used: totals do not need it.


def stats(session: Session | File, *, progress: Progress | None = None) -> Stats:
    """Return the totals of a whole recording, as of ``gputop stats``.

    Args:
        session: A file, or an open recording.
        progress: Reports the progress; None: no reports.

    Returns:
        Calls by process and function, switches and times by thread, lines; times in ns, sizes in bytes.

    Raises:
        GputopError: The file cannot be opened (as of ``open_session``) or understood.

    Example:
        >>> totals = stats("recordings/storm.msgpack")
        >>> totals.lost.events
        0
        >>> longest = max(totals.processes[0].calls, key=lambda call: call.sum_ns)
        >>> longest.api, longest.errors, longest.p50_ns <= longest.p99_ns <= longest.max_ns
        ('cudaStreamSynchronize', 0, True)
    """
    with _opened(session) as one:
        return one.totals(progress)


def explain(
    session: Session | File,
    *,
    pids: Iterable[int] | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    progress: Progress | None = None,
    memory_bytes: int | None = None,
) -> Report:
    """Explain why the GPU was idle, as ``gputop explain`` does.

    Args:
        session: A file, or an open recording.
        pids: Only findings of these processes; GPU idle time is that of all. None or empty: all.
        start_s: Only from this moment on, seconds from the start of the recording.
        end_s: Only up to this moment.
        progress: Reports the progress; None: no reports.
        memory_bytes: Memory limit, of all processes together: a larger recording is explained in parts, and a
            note lists what is not exact then. None: 1 GiB.

    Returns:
        Verdict, class, steps and findings; times in ns, moments in ns from the start of the recording.

    Raises:
        NoCallsError: It was recorded without eBPF.
        OutsideSessionError: There is nothing between these moments.
        GputopError: The file cannot be opened (as of ``open_session``) or understood.

    Example:
        >>> report = explain("recordings/dataloader.msgpack")
        >>> report.diagnosis.title
        'input-bound'
        >>> first = report.findings[0]
        >>> first.cause, str(first.level), first.line.text()
        ('C12', 'proved', 'loaders.py:36 in _Dataset.__getitem__()')
        >>> first.loss.lower > 0.8 * report.span_ns
        True
    """
    from gputop.analysis.build import explain as build
    from gputop.api import stretches
    from gputop.api.recording_evidence import evidence_of

    wanted = frozenset(pids or ()) or None
    progress = progress or SILENT
    with _opened(session) as one:
        unkept, memory = tuple(unkept_of(one)), memory_bytes or stretches.MEMORY
        if one.calls_observed and (unkept or not stretches.fits(memory, one)):
            progress.goes_on("explaining")
            between = _between(start_s, end_s, one.start_ns, one.start_ns + one.duration_ns)
            work = stretches.Explaining(dict(one.header), between, wanted, unkept)
            report = stretches.in_parts(one, work, memory, progress)
            return replace(report, notes=(*about_holes(one), *report.notes))
        evidence = evidence_of(one, progress)
        stopped = progress.stopped
        progress.goes_on("explaining")
        with understood(one.path):
            start = int(evidence.header.get("start_ns", evidence.start_ns))
            report = build(evidence, wanted, _between(start_s, end_s, start, evidence.end_ns))
        if stopped:
            note = interrupted(evidence.end_ns - one.start_ns, one.duration_ns)
            report = replace(report, notes=(note, *report.notes))
        return replace(report, notes=(*about_holes(one), *report.notes))


def diff(
    before: Session | File,
    after: Session | File,
    *,
    progress: Progress | None = None,
    memory_bytes: int | None = None,
) -> Diff:
    """Compare two recordings step by step, as ``gputop diff`` does.

    Args:
        before: The recording without the change.
        after: The recording with it.
        progress: Reports the progress; None: no reports.
        memory_bytes: Memory limit: if the two do not fit together, they are compared in parts. None: 1 GiB.

    Returns:
        The outcome in a sentence, and each measure and cause before and after; times in ns, per ``unit``: a
        step, a batch or a second.

    Raises:
        NoCallsError: One was recorded without eBPF.
        GputopError: One cannot be opened (as of ``open_session``) or understood.

    Example:
        >>> found = diff("recordings/dataloader.msgpack", "recordings/dataloader-fixed.msgpack")
        >>> [(row.cause, str(row.change)) for row in found.causes]
        [('C12', 'gone')]
        >>> duration = found.measure("duration_ns")
        >>> duration.before.usual > 5 * duration.after.usual, duration.clear
        (True, True)
    """
    from gputop.analysis.compare_parts import compare
    from gputop.api import comparing, stretches
    from gputop.api.recording_evidence import checked, evidence_of

    memory = memory_bytes or stretches.MEMORY
    progress = progress or SILENT
    with _opened(before) as session, _opened(after) as other_session:
        unkept = any(unkept_of(one) for one in (session, other_session))
        if unkept or not stretches.fits(memory, session, other_session):
            progress.goes_on("explaining")
            return comparing.in_parts(checked(session), checked(other_session), memory, progress)
    with _opened(before) as session:
        first, name = evidence_of(session, progress), session.path
    progress.goes_on("reading the other")
    with _opened(after) as session:
        second, other = evidence_of(session, progress), session.path
    progress.goes_on("comparing")
    with understood(f"{name} or {other}"):
        return compare(first, second)


def to_json(result: Frame | Stats | Report | Diff) -> dict[str, Any]:
    """Return a result as the object of the command's ``--json`` (docs/json.md): dicts and lists only.

    Args:
        result: Of ``stats``, ``explain`` or ``diff``, or a frame.

    Raises:
        TypeError: It is none of these.

    Example:
        >>> to_json(explain("recordings/dataloader.msgpack"))["schema"]
        'gputop.explain/1'
    """
    if isinstance(result, Frame):
        from gputop.engine.frame_json import frame_to_json

        return frame_to_json(result)
    if isinstance(result, Stats):
        from gputop.engine.stats_output import stats_to_json

        return stats_to_json(result)
    from gputop.analysis.answer.report import Report
    from gputop.analysis.compare import Diff
    from gputop.documents.fields import document

    if isinstance(result, Report | Diff):
        return document(result)
    raise TypeError(f"a {type(result).__name__} is no result of stats, explain or diff, and no frame")


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of an object that gputop prints.

    Args:
        name: The value of its key ``schema``, for instance ``gputop.explain/1``.

    Raises:
        GputopError: This gputop prints no such object.

    Example:
        >>> schema("gputop.stats/1")["properties"]["duration_ns"]
        {'type': 'integer'}
    """
    from gputop.api.json_schema import DOCUMENTS, schema_of

    if name not in DOCUMENTS:
        raise GputopError(f"there is no schema {name!r}: use one of {', '.join(sorted(DOCUMENTS))}")
    return schema_of(name)


@contextmanager
def _opened(session: Session | File) -> Iterator[Session]:
    """The session; a file is opened and closed again."""
    if isinstance(session, Session):
        yield session
        return
    with Session(session) as one:
        yield one


def _between(start_s: float | None, end_s: float | None, start: int, end: int) -> tuple[int, int] | None:
    """The requested part, ns of CLOCK_MONOTONIC; None: all."""
    if start_s is None and end_s is None:
        return None
    length = (end - start) / NS
    low = start_s if start_s is not None else 0.0
    high = min(end_s if end_s is not None else length, length)
    if low >= high:
        raise OutsideSessionError(
            f"there is nothing from {low:g} s to {high:g} s of this recording, which is {length:.1f} s long"
        )
    return start + int(low * NS), start + int(high * NS)
