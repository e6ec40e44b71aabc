"""Writes a redacted copy of a recording, and looks that nothing is left in it."""

from __future__ import annotations

import re
from typing import Any

from gputop.errors import GputopError
from gputop.files.output import new_session
from gputop.files.redaction import OWN_WORDS, Redactor
from gputop.files.whole import damage_of
from gputop.library.reading import Progress, understood
from gputop.library.session import Session, reader_of
from probes.source import APIS, Sample
from replay.reader import SessionReader

_LEAST = 3  # characters of a name that is looked for: shorter ones are parts of words


def redact(session: Session, path: str, progress: Progress | None = None, *, force: bool = False) -> int:
    """Writes the copy; returns how many names were replaced.

    Args:
        session: The recording; it is only read.
        path: Of the copy.
        progress: Is told how far the work is.
        force: Takes the place of what is there, once it is whole.

    Raises:
        GputopError: It cannot be read, or the copy not be written; or a name was found in the copy, which is
            taken away again.
    """
    reader = reader_of(session)
    redactor = Redactor()
    with understood(session.path):
        redactor.learn_header(session.header)
        items = reader.items()
        for item in progress.through(items, len(reader.marks)) if progress else items:
            redactor.learn_item(item)
        redactor.begin_again()
        if progress is not None:
            progress.goes_on("writing")
        with new_session(path, redactor.header(session.header), force=force) as writer:
            for problem in damage_of(session, session.start_ns):
                writer.write(redactor.item(problem))
            for item in reader.items():
                writer.write(redactor.item(item))
            writer.flush()
            _assert_gone(writer.path, redactor)
    return redactor.replaced


def _assert_gone(path: str, redactor: Redactor) -> None:
    """Reads the copy again, for names that must not be in it."""
    names = [re.escape(name) for name in redactor.pseudonyms if len(name) >= _LEAST]
    if not names:
        return
    wanted = re.compile(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)")
    reader = SessionReader(path)
    try:
        for item in reader.items():
            if isinstance(item, Sample) and item.kind != APIS and _holds(item.data, wanted):
                raise GputopError(
                    f"the copy still names something that was to be replaced, in a sample {item.kind!r}: "
                    "it was taken away; please report it"
                )
    finally:
        reader.close()


def _holds(value: Any, wanted: re.Pattern[str]) -> bool:
    """Whether a text in it holds one."""
    if isinstance(value, str):
        return wanted.search(value) is not None
    if isinstance(value, dict):
        return any(_holds(one, wanted) for key, one in value.items() if key not in OWN_WORDS)
    inner = value if isinstance(value, list) else ()
    return any(_holds(one, wanted) for one in inner)
