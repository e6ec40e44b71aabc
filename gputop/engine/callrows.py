"""From a call table to rows that can be shown: names, percentiles, histograms."""

from __future__ import annotations

import numpy as np

from gputop.engine import histogram
from gputop.engine.calltable import CallTable, Totals
from gputop.engine.facts import Facts
from gputop.engine.frame import CallRow


def call_rows(table: CallTable, totals: Totals, facts: Facts) -> dict[int, list[CallRow]]:
    """pid -> its calls, most time first; percentiles never exceed the largest value seen."""
    active = np.array([row for row in np.flatnonzero(totals.count).tolist() if table.keys[row]], np.int64)
    counts = table.counts[active]
    quantiles = np.minimum(
        histogram.percentiles(counts, (0.5, 0.95, 0.99)), totals.max_ns[active][:, None]
    ).tolist()
    octaves = histogram.by_power_of_two(counts).tolist()
    found: dict[int, list[CallRow]] = {}
    for row, (p50, p95, p99), octave in zip(active.tolist(), quantiles, octaves, strict=True):
        key = table.keys[row]
        assert key is not None
        pid, op, nested = key
        api, layer = facts.api(op)
        found.setdefault(pid, []).append(
            CallRow(
                api=api,
                layer=layer,
                nested=nested,
                count=int(totals.count[row]),
                errors=int(totals.errors[row]),
                bytes=int(totals.bytes[row]),
                sum_ns=int(totals.sum_ns[row]),
                p50_ns=p50,
                p95_ns=p95,
                p99_ns=p99,
                max_ns=int(totals.max_ns[row]),
                histogram=tuple(octave),
            )
        )
    for calls in found.values():
        calls.sort(key=lambda call: (-call.sum_ns, call.api, call.nested))
    return found
