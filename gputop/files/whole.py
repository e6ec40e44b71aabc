"""Whether a session file is whole, and a copy of what is intact of one that is not."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import Session, reader_of
from gputop.files.output_files import new_session
from probes.source import MARK, PROBLEM, Sample


@dataclass(frozen=True, slots=True)
class Verification:
    """What reading all of a file has shown.

    Attributes:
        frames: Intact marks.
        records: Intact records.
        samples: Intact samples, marks among them.
        problems: What is damaged or missing, in sentences; none: the file is whole.
    """

    frames: int
    records: int
    samples: int
    problems: tuple[str, ...]


def damage_of(session: Session, time_ns: int, where: str = "") -> list[Sample]:
    """What is known by now to be damaged or missing, for a copy, which is whole itself.

    Args:
        time_ns: When it is reported.
        where: What of the copy it is about, in front of each sentence.
    """
    return [Sample(PROBLEM, time_ns, {"text": where + text}) for text in session.problems]


def verify(session: Session, progress: Progress = SILENT) -> Verification:
    """Reads everything: each chunk is held against its checksum and decoded.

    Raises:
        SessionDamagedError: The file holds what this gputop does not understand.
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
    """Writes what is intact to a new file, which is whole and tells of what is missing.

    Args:
        force: Takes the place of what is there, once it is whole.

    Returns:
        What was found in the damaged one; all that is intact of it is in the new one.

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
