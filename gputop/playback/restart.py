"""A live explanation that has stopped begins anew, with what is known of the processes by then."""

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
    """One that explains from now on: more events came than the other could take in, or it failed.

    Returns:
        It has started, and is fed what comes from now on.
    """
    _LOG.warning("%s; it begins anew", failed.failure)
    with history.lock:
        facts, lost, now = history.facts(now=True), history.lost_now(), history.end_ns
    explainer = LiveExplainer(cut_header(header, now, lost), on_verdict, unseen=unseen)
    explainer.start()
    for sample in facts.samples(now):
        explainer.feed(sample)
    threading.Thread(target=failed.close, name="gputop-close", daemon=True).start()
    return explainer
