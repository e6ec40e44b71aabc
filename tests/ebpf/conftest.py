"""Both ways to attach: what is exact with multi-uprobe links is exact with perf events."""

from __future__ import annotations

import pytest

from probes.api import NAMES
from probes.minimal import MINIMAL


@pytest.fixture(params=["multi", "perf"])
def traced_names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> frozenset[str]:
    """The functions that are traced, once attached as newer kernels can and once as Linux 5.15 can."""
    monkeypatch.setenv("GPUTOP_ATTACH", request.param)
    return frozenset(NAMES) if request.param == "multi" else MINIMAL
