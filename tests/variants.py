"""Which variants of a test ``make test`` runs where all of them would repeat each other: ``mainly(id, ...)``.

The others are marked ``long``, so ``make test-long`` runs them. An identifier that no variant has
is an error: a variant that was renamed would be left out silently.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

MARKER = "mainly"


def mark(items: list[pytest.Item]) -> None:
    """Marks the other variants.

    Raises:
        pytest.UsageError: No variant has one of the identifiers, though several are there.
    """
    found: dict[str, set[str]] = defaultdict(set)
    wanted: dict[str, set[str]] = {}
    for item in items:
        marker = item.get_closest_marker(MARKER)
        if marker is None or not isinstance(item, pytest.Function):
            continue
        name = item.nodeid.partition("[")[0]
        variant = item.callspec.id
        found[name].add(variant)
        wanted[name] = set(marker.args)
        if variant not in marker.args:
            item.add_marker(pytest.mark.long)
    for name, variants in found.items():
        if len(variants) > 1 and (unknown := wanted[name] - variants):  # one alone was asked for by its name
            raise pytest.UsageError(
                f"{name}: {MARKER} names {sorted(unknown)}, its variants are {sorted(variants)}"
            )
