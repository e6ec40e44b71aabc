"""What a recording with ``--inside`` holds for an explanation."""

from __future__ import annotations

from pathlib import Path

from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.gatherer import Gatherer
from probes.samples import sample_data
from probes.source import PROBLEM
from replay.reader import SessionReader

FLAGS = ("--simgpu", "--inside")


def evidence_of(path: Path) -> tuple[Evidence, list[str]]:
    """What an explanation would use, and the problems that are reported."""
    reader = SessionReader(path)
    gatherer, problems = Gatherer(reader.header), []
    for item in reader.items():
        gatherer.feed(item)
        if (problem := sample_data(item, PROBLEM)) is not None:
            problems.append(problem["text"])
    reader.close()
    return assemble(gatherer), problems
