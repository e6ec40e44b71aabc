"""All sections of ``gputop check``, as text or JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gputop.checks import (
    check_bcc,
    check_kernel,
    check_libraries,
    check_native,
    check_nvml,
    check_python,
    check_rights,
    check_tracing,
)
from gputop.checks.distribution import Distribution, read_distribution
from gputop.checks.fact import MISSING, NOTE, OK, Fact, Section, missing
from gputop.documents.check_schema import CheckDocument
from gputop.format import escape_text
from probes.ebpf.rights import read_rights
from probes.files import file_reader

SCHEMA: Final = "gputop.check/1"
_WIDTH = 80
_WORD = 10  # columns of glyph and word
_GLYPHS = {OK: "✓", MISSING: "✗", NOTE: "·"}
_ASCII_GLYPHS = {OK: "+", MISSING: "x", NOTE: "-"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Scope of a check."""

    pids: tuple[int, ...] | None  # only libraries of these processes; None for all
    seconds: float  # shortest time in which hits are counted
    environment: Mapping[str, str]  # for the library search path
    # prefixes of Python installations whose CUDA wheels count as installed
    interpreters: tuple[Path, ...] = ()
    nvml_library: Path | None = None  # NVML library to load instead of the system's
    call_all: bool = False  # also call libraries writable by non-root users


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The sections of a check."""

    distribution: Distribution
    sections: tuple[Section, ...]

    @property
    def live(self) -> bool:
        """True if live tracing works here."""
        return not any(section.blocks for section in self.sections)


def gather(plan: Plan) -> CheckReport:
    """Run all checks, with a trial of tracing if nothing rules it out."""
    distribution = read_distribution()
    machine = check_kernel.read_kernel(plan.environment)
    before = (
        check_kernel.kernel_section(machine),
        check_rights.rights_section(read_rights()),
        check_bcc.bcc_section(check_bcc.read_bcc(), distribution),
    )
    found = check_libraries.find(plan.pids, plan.environment, plan.interpreters)
    trial = check_tracing.Trial(tried=False)
    if not any(section.blocks for section in before):
        trial, found = check_tracing.try_tracing(found, plan.seconds, call_all=plan.call_all)
    pythons = check_python.find(plan.pids, plan.environment, plan.interpreters)
    others = {pid for library in found for pid in library.pids}.difference(*(one.pids for one in pythons))
    programs = check_native.find(others)
    libraries = check_libraries.libraries_section(found, all_traced=machine.path != check_kernel.PERF)
    reader = file_reader.current()
    abandoned = [missing(text, "", blocks=False) for text in reader.problems] if reader is not None else []
    after = (
        check_tracing.tracing_section(trial),
        replace(libraries, facts=(*libraries.facts, *abandoned)),
        check_python.python_section(pythons),
        check_native.native_section(programs),
        check_nvml.nvml_section(check_nvml.read_nvml(plan.nvml_library), distribution),
    )
    return CheckReport(distribution, (*before, *after))


def to_json(report: CheckReport, version: str) -> CheckDocument:
    """Return the ``gputop.check/1`` object of docs/json.md."""
    facts = [
        {
            "family": section.name,
            "status": fact.status,
            "text": fact.text,
            "fix": fact.fix,
            "blocks": fact.blocks,
        }
        for section in report.sections
        for fact in section.facts
    ]
    made: Any = {
        "schema": SCHEMA,
        "version": version,
        "live": report.live,
        "distribution": report.distribution.name,
        "facts": facts,
        **{section.name: section.data for section in report.sections},
    }
    document: CheckDocument = made
    return document


def _wrapped(first: str, text: str, width: int) -> list[str]:
    """Wrap into lines of at most ``width`` columns, unless a word (a path) is longer."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * (_WORD + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _fact_lines(facts: Sequence[Fact], glyphs: Mapping[str, str], *, ascii_only: bool) -> list[str]:
    lines: list[str] = []
    for fact in facts:
        head = f"  {glyphs[fact.status]} {fact.status}".ljust(_WORD + 2)
        lines += _wrapped(head, escape_text(fact.text, ascii_only=ascii_only), _WIDTH)
        if fact.fix:
            arrow = "->" if ascii_only else "→"
            lines += _wrapped(
                " " * (_WORD + 2), f"{arrow} {escape_text(fact.fix, ascii_only=ascii_only)}", _WIDTH
            )
    return lines


def to_text(report: CheckReport, *, verbose: bool = False, ascii_only: bool = False) -> str:
    """Return the verdict and what is missing with its remedy, then a group of lines for each section."""
    glyphs = _ASCII_GLYPHS if ascii_only else _GLYPHS
    blocks = [_first_lines(report, glyphs, ascii_only=ascii_only)]
    for section in report.sections:
        lines = [section.name, *_fact_lines(section.facts, glyphs, ascii_only=ascii_only)]
        if verbose:
            lines += [f"    {escape_text(line, ascii_only=ascii_only)}" for line in section.details]
        blocks.append(lines)
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks)


def _first_lines(report: CheckReport, glyphs: Mapping[str, str], *, ascii_only: bool) -> list[str]:
    """The verdict, and what is missing: first requirements of tracing, then the rest."""
    missing_facts = [fact for section in report.sections for fact in section.facts if fact.status == MISSING]
    blocking = [fact for fact in missing_facts if fact.blocks]
    others = [fact for fact in missing_facts if not fact.blocks]
    if blocking:
        lines = ["Live tracing does not work here:", *_fact_lines(blocking, glyphs, ascii_only=ascii_only)]
        lines += textwrap.wrap("What needs no eBPF works: gputop over NVML and procfs, replay, stats", _WIDTH)
    else:
        lines = ["Live tracing works here." + (" Missing beside it:" if others else "")]
    return [*lines, *_fact_lines(others, glyphs, ascii_only=ascii_only)]
