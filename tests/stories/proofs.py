"""Whether a text calls "proved" what is not: a name, or idle time, that rests on less."""

from __future__ import annotations

import re

from gputop.analysis.answer.report import Finding, Report
from gputop.analysis.answer.report_output import report_to_markdown, report_to_text

ORDER = ("hint", "strong", "proved")
LEVELS = re.compile(r"\[(C\d\d), (\w+)\]")
GUESSED = re.compile(r"is inferred|by samples|is estimated")  # sentences of evidence that no proof rests on


def least(finding: Finding) -> str:
    """The less sure of its two levels."""
    return min(str(finding.idle_level), str(finding.name_level), key=ORDER.index)


def false_levels(report: Report) -> list[str]:
    """Where a text names another level than that of the less sure part, or a guess is called proved."""
    wrong: list[str] = []
    of_cause: dict[str, set[str]] = {}
    for finding in report.findings:
        of_cause.setdefault(finding.cause, set()).add(least(finding))
        evidence = " ".join(finding.evidence)
        if GUESSED.search(evidence) and least(finding) == "proved":
            wrong.append(f"{finding.cause}: a guess is called proved")
        surer = finding.idle_level != finding.name_level and least(finding) != str(finding.idle_level)
        if surer and f"its cause: {finding.name_level}" not in evidence:
            wrong.append(f"{finding.cause}: the level of its name is missing")
    for text in (report.verdict, report_to_text(report), report_to_markdown(report)):
        for cause, level in LEVELS.findall(re.sub(r"\s+", " ", text)):
            if level not in of_cause.get(cause, {level}):
                wrong.append(f"{cause}: called {level}")
    return list(dict.fromkeys(wrong))
