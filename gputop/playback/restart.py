"""Restarts a live explanation that has stopped, with the known state of the processes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from gputop.analysis.live import LiveExplainer
from gputop.analysis.window import Verdict
from replay.past.history import History, cut_header

_LOG = logging.getLogger(__name__)


def begun_anew(
    failed: LiveExplainer,
    header: Mapping[str, Any],
    history: History,
    on_verdict: Callable[[Verdict], None],
    *,
    unseen: bool = False,
) -> LiveExplainer:
    """Return a started explainer in place of one that failed or fell behind, for items from now on."""
    _LOG.warning("%s; it begins anew", failed.failure)
    with history.lock:
        facts, lost, now = history.facts(now=True), history.lost_now(), history.end_ns
    explainer = LiveExplainer(cut_header(header, now, lost), on_verdict, unseen=unseen)
    explainer.start()
    for sample in facts.samples(now):
        explainer.feed(sample)
    threading.Thread(target=failed.close, name="gputop-close", daemon=True).start()
    return explainer
