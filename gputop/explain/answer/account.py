"""One GPU's span as parts that add up to it: proved idle, estimated idle, busy, unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputop.errors import AccountingError
from gputop.explain.answer.report import Account, Range
from gputop.explain.chains.analysis import Analysis
from gputop.explain.proofs.gaps import DeviceTime


def account(analysis: Analysis, device: DeviceTime, *, shared: bool) -> Account:
    """The parts of one GPU's span.

    Args:
        analysis: What was found.
        device: The GPU.
        shared: Whether processes that are not watched use it, too.

    Raises:
        AccountingError: They do not add up to it.
    """
    gaps = analysis.gaps
    # gaps that rest on an assumption are no proof, and still no work was known then
    assumed = (gaps.device == device.device) & ~gaps.proved & ~gaps.estimated
    assumed_ns = int((gaps.end - gaps.begin)[assumed].sum())
    open_ns = device.unknown_ns - assumed_ns
    # the GPU waits while a process starts and code is loaded, as far as one can tell
    estimate = next((one for one in analysis.estimates if one.device == device.device), None)
    begun = device.outside_ns
    ended = estimate.ended_ns if estimate is not None else 0
    guessed = estimate.idle_ns if estimate is not None else 0
    proved_ns, busy_ns = (
        device.empty_ns,
        device.pending_ns + (open_ns - guessed - ended if estimate is not None else 0),
    )
    if shared and estimate is not None and estimate.busy_share is not None:
        # others may have worked while the watched ones gave the GPU nothing
        idle_ns = assumed_ns + guessed + begun + ended + proved_ns
        others = max(idle_ns - int(device.span_ns * (1 - estimate.busy_share)), 0)
        busy_ns += others
        assumed_ns, proved_ns = assumed_ns + proved_ns - others, 0
    made = Account(
        span_ns=device.span_ns,
        proved_ns=proved_ns,
        estimated_ns=assumed_ns + guessed + (begun + ended if estimate is not None else 0),
        busy_ns=busy_ns,
        unknown_ns=0 if estimate is not None else open_ns + begun,
        outside_ns=begun + ended,
        error_ns=estimate.error_ns if estimate is not None else None,
        source=estimate.source if estimate is not None else None,
        agrees=estimate.agrees if estimate is not None else True,
        seen_busy=estimate.busy_share if estimate is not None else None,
        bounds=Range(proved_ns, device.empty_ns + device.unknown_ns + begun),
    )
    parts = (made.proved_ns, made.estimated_ns, made.busy_ns, made.unknown_ns)
    if sum(parts) != device.span_ns or min(parts) < 0:
        raise AccountingError(f"the parts of a GPU's time, {parts}, do not add up to {device.span_ns} ns")
    return made


def whole(accounts: Sequence[Account]) -> Range:
    """The idle time of all GPUs together; with an estimate where each of them has one."""
    lower, upper = (sum(getattr(one.bounds, end) for one in accounts) for end in ("lower", "upper"))
    if not accounts or any(one.idle.estimate is None for one in accounts):
        return Range(lower, upper)
    return Range(lower, upper, sum(one.proved_ns + one.estimated_ns for one in accounts))


def joined(one: Account, other: Account) -> Account:
    """The account of two parts: their sum; the source of what is estimated stays."""
    seen = [(part.seen_busy, part.span_ns) for part in (one, other) if part.seen_busy is not None]
    weight = sum(ns for _share, ns in seen)
    errors = [part.error_ns for part in (one, other) if part.error_ns is not None]
    first, second = (one, other) if one.span_ns >= other.span_ns else (other, one)
    return Account(
        span_ns=one.span_ns + other.span_ns,
        proved_ns=one.proved_ns + other.proved_ns,
        estimated_ns=one.estimated_ns + other.estimated_ns,
        busy_ns=one.busy_ns + other.busy_ns,
        unknown_ns=one.unknown_ns + other.unknown_ns,
        outside_ns=one.outside_ns + other.outside_ns,
        error_ns=sum(errors) if errors else None,
        source=first.source or second.source,
        agrees=one.agrees and other.agrees,
        seen_busy=sum((share or 0.0) * ns for share, ns in seen) / weight if weight else None,
        bounds=Range(one.bounds.lower + other.bounds.lower, one.bounds.upper + other.bounds.upper),
    )


def settled(account: Account) -> Account:
    """The same, with what some parts have no estimate of as idle as the rest; all of that is its error.

    Where that is most of the time nothing is estimated.
    """
    if account.source is None or not account.unknown_ns:
        return account
    known_ns = account.span_ns - account.unknown_ns
    if account.unknown_ns > known_ns:
        return replace(account, source=None, error_ns=None)
    idle_ns = account.unknown_ns * (account.proved_ns + account.estimated_ns) // max(known_ns, 1)
    return replace(
        account,
        estimated_ns=account.estimated_ns + idle_ns,
        busy_ns=account.busy_ns + account.unknown_ns - idle_ns,
        unknown_ns=0,
        error_ns=(account.error_ns or 0) + max(idle_ns, account.unknown_ns - idle_ns),
    )
