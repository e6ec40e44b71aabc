"""What must hold whichever call failed: a sentence or less detail, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator

from replay.coding.file_format import SessionError
from replay.reader import SessionReader
from tests.failing.harness import TIMEOUT_S, WATCHED_STATUS, Outcome

_NEVER = (
    "Traceback (most recent call last)",
    "Exception ignored",
    "Exception in thread",
    "this should not have happened",
    "Fatal Python error",
)
_MOST_LINES = 4  # on standard error
_STATUSES = {
    "once": {0, 1},
    "record": {WATCHED_STATUS, 1},
    "replay": {0, 1},
    "explain": {0, 1, 3},
    "stats": {0, 1},
    "check": {0, 1},
}


def complaints(outcome: Outcome) -> list[str]:
    """What is wrong with an outcome, a sentence each; empty when all is well."""
    found = list(_of_words(outcome))
    found += [f"it left behind: {what}" for what in outcome.left if not _is_meant(outcome, what)]
    if outcome.case.command == "record":
        found += _of_recording(outcome)
    return found


def _is_meant(outcome: Outcome, left: str) -> bool:
    """What closes perf's probes after gputop has ended; the file of a command that went on without it."""
    return "probes/ebpf/detacher.py" in left or (
        outcome.case.family == "memory" and left.startswith("gputop-output-")
    )


def _of_words(outcome: Outcome) -> Iterator[str]:
    case, said = outcome.case, outcome.said
    if outcome.status is None:
        yield f"it did not end within {TIMEOUT_S:.0f} s"
        return
    if outcome.status not in _STATUSES[case.command] | ({141} if case.error == "EPIPE" else set()):
        yield f"it ended with status {outcome.status}"
    for words in _NEVER:
        if words in said:
            yield f"it says {words!r}"
    if said.count("\n") > _MOST_LINES:
        yield f"it says {said.count(chr(10))} lines"
    own_words_failed = case.family == "write"  # nobody hears what it says then
    if (
        outcome.status == 1
        and not said.startswith("gputop: ")
        and not outcome.output
        and not own_words_failed
    ):
        yield "it ended without a word"


def _of_recording(outcome: Outcome) -> Iterator[str]:
    """The file can be read to its end, and it is whole unless gputop said that it is not."""
    if not outcome.file.exists():
        if outcome.status == WATCHED_STATUS:
            yield "there is no recording, and it ended as if there were"
        return
    try:
        reader = SessionReader(outcome.file)
    except SessionError as error:
        yield f"the recording is not readable: {error}"
        return
    try:
        read = sum(1 for _ in reader.items())
        if outcome.status == WATCHED_STATUS and (reader.problems or not len(reader.marks) or not read):
            yield f"the recording is not whole, which nobody said: {reader.problems}"
    finally:
        reader.close()
