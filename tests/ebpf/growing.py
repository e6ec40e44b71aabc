"""What a recording holds that is being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from probes.samples import text_of
from probes.source import Sample
from replay.coding.file_format import SessionError
from replay.reader import SessionReader


def marks(path: Path) -> int:
    """How many marks a file that is being written holds."""
    try:
        reader = SessionReader(path)
    except SessionError:
        return 0
    count = len(reader.marks)
    reader.close()
    return count


def samples(file: Path) -> Iterator[Sample]:
    """Of a recording that is being written."""
    try:
        reader = SessionReader(file)
    except SessionError:
        return
    yield from (item for item in reader.items() if isinstance(item, Sample))
    reader.close()


def notes(file: Path) -> list[str]:
    """What has been noted by now."""
    return [text_of(one) for one in samples(file) if one.kind == "note"]


def traced(file: Path) -> list[str]:
    """The libraries to whose functions gputop has attached by now."""
    return [text.split(" functions of ")[1] for text in notes(file) if text.endswith(" are traced")]


def has(file: Path, kind: str, *texts: str) -> bool:
    return any(all(text in str(one.data) for text in texts) for one in samples(file) if one.kind == kind)
