"""Integrity of a session file, and a copy of the intact parts of a damaged one."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import Session, reader_of
from gputop.files.output_files import new_session
from probes.source import MARK, PROBLEM, Sample


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of reading a whole file."""

    frames: int  # intact marks
    records: int  # intact records
    samples: int  # intact samples, marks among them
    problems: tuple[str, ...]  # damaged or missing parts, a sentence each; empty: the file is intact


def damage_of(session: Session, time_ns: int, where: str = "") -> list[Sample]:
    """Return the damage found so far, as samples for a copy, which is itself intact.

    Args:
        time_ns: Time of the samples.
        where: Prefix of each sentence.
    """
    return [Sample(PROBLEM, time_ns, {"text": where + text}) for text in session.problems]


def verify(session: Session, progress: Progress = SILENT) -> Verification:
    """Read everything: each chunk is compared with its checksum and decoded.

    Raises:
        SessionDamagedError: The file holds data that this gputop does not understand.
    """
    reader = reader_of(session)
    frames = records = samples = 0
    with understood(session.path):
        items = reader.items()
        for item in progress.through(items, len(reader.marks)):
            if isinstance(item, Sample):
                samples += 1
                frames += item.kind == MARK
            else:
                records += len(item)
    return Verification(frames, records, samples, session.problems)


def repair(session: Session, path: str, progress: Progress = SILENT, *, force: bool = False) -> Verification:
    """Write the intact parts to a new file, which is itself intact and lists the missing parts.

    Args:
        force: Replace an existing file, once the new one is complete.

    Returns:
        The contents of the damaged file, all of which are in the new one.

    Raises:
        GputopError: It cannot be read, or the new one not be written.
    """
    found = verify(session, progress)
    progress.goes_on("writing")
    reader = reader_of(session)
    with new_session(path, session.header, force=force) as writer, understood(session.path):
        for problem in damage_of(session, session.start_ns):
            writer.write(problem)
        items = reader.items()
        for item in progress.through(items, len(reader.marks)):
            writer.write(item)
    return found
