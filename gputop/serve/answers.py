"""What the daemon answers to who asks once: the past as a session."""

from __future__ import annotations

import time
from typing import Any

from gputop.serve import wire
from gputop.serve.answering import Answering
from gputop.serve.daemon import Daemon
from gputop.serve.past import Past
from replay.coding.chunker import Chunker

MOST_S = 86400.0


def send_past(daemon: Daemon, connection: Answering, uid: int, message: dict[str, Any]) -> None:
    """Sends what the ring holds of the last seconds, as a user may see it. Raises OSError.

    Args:
        daemon: Goes on meanwhile.
        connection: Waits as long as its time-out allows.
        uid: The user.
        message: ``seconds``: how far back.
    """
    seconds = message.get("seconds")
    reach = float(seconds) if isinstance(seconds, int | float) and 0 < seconds < MOST_S else MOST_S
    past = Past(daemon.history, daemon.explainer, uid, time.monotonic_ns() - int(reach * 1e9))
    chunks: list[bytes] = []
    chunker = Chunker(lambda kind, first, last, count, chunk: chunks.append(chunk))
    told = False
    for item in past.items():
        if not told:
            connection.sendall(wire.packed({"k": "header", "data": past.header}))
            told = True
        chunker.write(item)
        if sum(map(len, chunks)) >= wire.CHUNKS:
            for part in wire.messages_of(chunks):
                connection.sendall(part)
            chunks.clear()
    chunker.flush()
    for part in wire.messages_of(chunks):
        connection.sendall(part)
    connection.sendall(wire.packed({"k": "done"}))
