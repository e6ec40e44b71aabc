"""Runs the screen on a terminal, which is restored in any case."""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module

from gputop.format import escape_text, format_counted
from gputop.playback.feed import Feed
from gputop.process.stdio import print_message, print_traceback
from gputop.process.terminal import in_browser
from gputop.process.textual_app import freeze_old_objects
from gputop.ui.model.config import USUAL, Startup

_LOG = logging.getLogger(__name__)
NO_TERMINAL = "gputop's screen needs a terminal; use --once or --json"
SHOWN_LINES = 20
_LATER = (
    "gputop.ui.page_screens",
    "gputop.ui.model.process.reported",
    "gputop.ui.exports",
    "gputop.engine.frame_json",
    "gputop.analysis.answer.report_output",
    "gputop.analysis.live",
    "pygments.lexers.python",
)


def run_app(
    feed: Feed,
    startup: Startup = USUAL,
    *,
    seen: Callable[[], None] = lambda: None,
    ease: Callable[[int], None] = lambda slower: None,
) -> int:
    """Show the screen until the user quits.

    Args:
        feed: The source of frames.
        startup: The screen's settings.
        seen: Called once the first frame is on the screen, to start everything that it does not need.
        ease: Has WHY updated so many times less often, while gputop is over its budget.

    Returns:
        The exit status: 0, 1 when there is no terminal or the screen failed, 128 + n after signal n.
    """
    if not (_is_terminal(0) and _is_terminal(1)) and not in_browser():
        sys.stderr.write(NO_TERMINAL + "\n")
        return 1
    # 80 ms of imports, after the check
    from gputop.ui.app import ENDING, GputopApp
    from gputop.ui.terminal.native_log import NativeLog
    from gputop.ui.terminal.terminal_guard import TerminalGuard

    log = NativeLog()
    crash: BaseException | None = None
    status: int | None = None
    thresholds = gc.get_threshold()
    before = {number: signal.getsignal(number) for number in ENDING}
    with TerminalGuard(), log:
        app = GputopApp(feed, startup, native_log=log, seen=partial(_begin, seen), ease=ease)
        try:
            status = app.run()
        except KeyboardInterrupt:
            status = 0
        except Exception as error:
            crash = error
        finally:
            gc.set_threshold(*thresholds)
            gc.enable()
            for number, handler in before.items():
                signal.signal(number, handler)
    crash = app.crash or crash
    if crash is not None:
        _LOG.error("the screen ended", exc_info=crash)
    if isinstance(crash, OSError) and crash.errno == errno.EIO:
        crash, status = None, 128 + signal.SIGHUP  # the terminal is gone, before its signal
    if status != 128 + signal.SIGHUP:  # else the terminal is gone
        _print_after(log.lines(), crash)
    return 1 if crash else status if status is not None else (app.return_code or 0)


def _begin(seen: Callable[[], None]) -> None:
    """Start what waits for the first frame on the screen."""
    seen()
    threading.Thread(target=_load, name="gputop-later", daemon=True).start()


def _load() -> None:
    """Import the modules of pages, so that their first key need not wait.

    The garbage collector skips them afterwards, which saves 50 ms; older objects are collected between two
    frames, not while a key is handled.
    """
    for module in _LATER:
        import_module(module)
    freeze_old_objects()


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _print_after(lines: list[str], crash: BaseException | None) -> None:
    """Print the output of libraries and the error, after the screen has closed."""
    if lines:
        sys.stderr.write(
            f"gputop: {format_counted(len(lines), 'line')} that libraries wrote during the run:\n"
        )
        sys.stderr.writelines(f"  {escape_text(line)}\n" for line in lines[-SHOWN_LINES:])
    if crash is None:
        return
    if os.environ.get("GPUTOP_TRACEBACK"):
        print_traceback(crash)
    print_message(f"the screen failed: {type(crash).__name__}: {crash} (GPUTOP_TRACEBACK=1 shows where)")
