"""Sentences for unexpected errors: refusals by the machine, or bugs of gputop."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gputop.errors import FAILURE
from gputop.process.interrupts import Interrupted
from gputop.process.stdio import print_message, print_traceback

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# what each package raises with a sentence of its own; not imported for that: most commands need few of them
_SENTENCES = (
    ("probes.ebpf.loader", "ProbeError"),
    ("replay.coding.file_format", "SessionError"),
)
_LOG = logging.getLogger(__name__)
_NEXT = {
    errno.EMFILE: "allow more open files (ulimit -n) and start gputop again",
    errno.ENFILE: "this machine's open files are used up: end programs, or raise fs.file-max",
    errno.ENOMEM: "end other programs, or allow gputop more memory (ulimit -v, its control group)",
    errno.EIO: "the disk or device fails: see dmesg",
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
}
_OF_FILES = {
    errno.ENOENT: "if it belongs to gputop or to Python, install that again",
    errno.EACCES: "check its permissions",
}
_NO_MEMORY = f"there is not enough memory; {_NEXT[errno.ENOMEM]}"
# the dynamic loader's words, in the text of an ImportError
_UNLOADABLE = ("failed to map segment", "annot allocate memory")
_WHERE = "(GPUTOP_TRACEBACK=1 shows where)"


def report(error: BaseException) -> None:
    """Print what went wrong; with GPUTOP_TRACEBACK, the traceback."""
    if os.environ.get("GPUTOP_TRACEBACK"):
        print_traceback(error)
    else:
        print_message(sentence(error))


def sentence(error: BaseException) -> str:
    """Return what went wrong and the next step, in one sentence."""
    for module, name in _SENTENCES:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(error, kind):
            return str(error)
    for cause in _causes(error):
        if text := refused(cause):
            return text
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(
        ("gputop", "probes", "replay")
    ):
        # started from a checkout by a Python that is not set up
        return (
            f"{sys.executable} has no package {error.name}, which gputop needs: "
            "start it by `make run`, or `make install` it"
        )
    return (
        f"this should not have happened: {type(error).__name__}: {error} "
        "(GPUTOP_TRACEBACK=1 shows where; please report it)"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes; libraries raise an ImportError of their own after one of the system."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or (cause.__context__ if isinstance(cause, ImportError) else None)


def refused(error: BaseException) -> str:
    """Return what the machine refused and the next step; "" if the error does not come from the machine."""
    if _out_of_memory(error):
        return f"{_NO_MEMORY} {_WHERE}"
    if not isinstance(error, OSError):
        return ""
    advice = _NEXT.get(error.errno or 0) or (_OF_FILES.get(error.errno or 0) if error.filename else None)
    if advice is None:
        return ""
    what = (
        f"{os.fsdecode(error.filename)}: {error.strerror}" if isinstance(error.filename, str | bytes) else ""
    )
    return f"{what or f'a system call failed: {error.strerror}'}; {advice} {_WHERE}"


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    text = str(error)
    # the import of compiled modules loses the MemoryError
    if text in ("error return without exception set", "can't start new thread"):
        return True
    return isinstance(error, ImportError | OSError) and any(words in text for words in _UNLOADABLE)


def listen() -> None:
    """Print exceptions that end a thread as a sentence, from now on."""
    threading.excepthook = thread_ended
    sys.unraisablehook = _not_raised


def thread_ended(what: threading.ExceptHookArgs) -> None:
    """Log and print the exception that ended a thread (``threading.excepthook``)."""
    if what.exc_value is not None and not isinstance(what.exc_value, SystemExit):
        _LOG.error("a thread ended", exc_info=what.exc_value)
        report(what.exc_value)


def _not_raised(what: UnraisableHookArgs) -> None:
    if what.exc_value is None or isinstance(what.exc_value, Interrupted):  # which is raised again
        return
    _LOG.error("not raised", exc_info=what.exc_value)
    report(what.exc_value)
    if isinstance(getattr(what.object, "__self__", None), threading.Thread):
        # out of memory before it began: its starter would wait for it for ever
        os._exit(FAILURE)
