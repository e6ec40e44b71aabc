"""One observation without a screen, for all the screens of ``gputop web``."""

from __future__ import annotations

import argparse
from contextlib import suppress

from gputop.commands.observation import open_session
from gputop.commands.screen.looks import RATE_HZ
from gputop.errors import CommandError
from gputop.process.interrupts import finishing
from gputop.process.stdio import put
from gputop.serve.clients.listening import listen
from gputop.serve.sharing import Sharing

READY = "ready"  # this line means that screens may connect


def share(options: argparse.Namespace) -> int:
    """Observe until a signal; return the exit status."""
    try:
        listening = listen(options.share)
    except OSError as error:
        raise CommandError(f"cannot create a socket at {options.share}: {error.strerror}") from error
    try:
        session = open_session(
            options, record_to=None, output=None, rate_hz=options.rate or RATE_HZ, lines_later=True
        )
        sharing = Sharing(session.header, listening.socket)
        with session.answering():
            try:
                sharing.start()
                session.release_meanwhile(lambda _error: None)  # without a command, nothing can fail
                put(f"{READY}\n")
                for item in session.items():
                    sharing.consume(item)
            finally:
                with finishing(), suppress(CommandError):
                    session.source.abandon()
                    sharing.close("gputop web has ended")
        return 0
    finally:
        listening.close()
