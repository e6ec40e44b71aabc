"""A report in words: loss, share, level and saving are worded here and nowhere else.

Text, Markdown, the HTML page, the chain page and the WHY panel lay out what these functions return.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gputop.analysis.answer.report import (
    Account,
    Diagnosis,
    Finding,
    Level,
    Link,
    OneOff,
    Range,
    Report,
    StepFacts,
    StormCost,
    WhatIf,
    whole,
)
from gputop.analysis.evidence.power import Energy, EnergyFigures, OneGpu, ProcessEnergy
from gputop.engine.facts import Facts
from gputop.format import NS_PER_S, format_count, format_joules, format_ns, format_percent, format_times

NEAR = 1.05  # an upper bound below so many times the lower one says nothing more
_WORTH_REPORTING = 5.0  # percent of the span
PROVED, STRONG = "proved", "strong"
LEVELS = {
    PROVED: "follows from the recorded events and from CUDA's documented rules",
    STRONG: "one assumption holds as far as the data show",
    "hint": "fits, but something else could fit too",
}
TIME = "% of the time"
ACCOUNTS = "accounts for"
NO_FINDING = "No finding: no recurring loss of GPU time."

# -- loss and share -----------------------------------------------------------------------------------


def loss_ns(loss: Range) -> int:
    """Return a loss as one figure: the estimate, else the lower bound, else the middle."""
    return loss.estimate if loss.estimate is not None else loss.lower or int(loss.middle)


def ends_of(loss: Range) -> tuple[int, int]:
    """Return (the lower bound, the estimate or else the upper bound), ns."""
    upper = loss.upper if loss.estimate is None else loss.estimate
    return min(loss.lower, upper), upper


def loss_text(loss: Range, idle_level: str = PROVED) -> str:
    """Return ``2.25s``, ``1.0s to 1.6s``, or ``about 1.2s (1.0s proved, at most 1.6s)``."""
    if loss.upper < NEAR * loss.lower:
        return format_ns(loss_ns(loss))
    if loss.estimate is None:
        return f"{_ns(loss.lower)} to {format_ns(loss.upper)}"
    # below "proved" the lower bound rests on an assumption
    sure = f"{_ns(loss.lower)} {PROVED if idle_level == PROVED else STRONG}"
    return f"about {format_ns(loss.estimate)} ({sure}, at most {format_ns(loss.upper)})"


def cost_text(loss: Range, dash: str = "–") -> str:
    """Return the same in few columns: ``2.25s``, ``1.0–1.6s`` without an estimate."""
    if loss.estimate is not None or loss.upper <= NEAR * loss.lower:
        return format_ns(loss_ns(loss))
    low, high = _ns(loss.lower), format_ns(loss.upper)
    unit = high.lstrip("0123456789.")
    return f"{low.removesuffix(unit) if low.lstrip('0123456789.') == unit else low}{dash}{high}"


def share_text(loss: Range, span_ns: int, dash: str = "–") -> str:
    """Return the percent of the time of both ends: ``47–72``, ``48`` where they read the same."""
    low, high = ends_of(loss)
    return percent_text(low / max(span_ns, 1), high / max(span_ns, 1), dash)


def accounts_for(loss: Range, span_ns: int) -> str:
    """Return the ground of a class: ``accounts for 47–72 % of the time``."""
    return f"{ACCOUNTS} {share_text(loss, span_ns)} {TIME}"


def percent_text(low: float, high: float, dash: str = "–") -> str:
    """Return shares of 0 to 1 in percent, without its sign: ``47–72``, ``48`` where both read the same."""
    return dash.join(dict.fromkeys(format_percent(100 * end) for end in (low, high)))


def is_about(loss: Range) -> bool:
    """Return True if its one figure is an estimate of which a part is not proved."""
    return loss.estimate is not None and loss.estimate > NEAR * loss.lower


def has_bounds(loss: Range) -> bool:
    """Return True if its bounds say more than its one figure."""
    return loss.upper >= NEAR * loss.lower


def _ns(ns: float) -> str:
    return format_ns(ns) if ns else "0"


def devices_text(labels: Sequence[str]) -> str:
    """Return ``GPU 0``, ``8 GPUs``; processes on unnamed GPUs count as such: ``the GPUs of 8 processes``."""
    named = [label for label in labels if label.startswith("GPU ")]
    others = [label for label in labels if label not in named]
    owners = {label.rpartition(" ")[2] for label in others}
    parts = [named[0] if len(named) == 1 else f"{len(named)} GPUs"] if named else []
    if len(others) == 1:
        parts += others
    elif others:
        parts.append(f"the GPUs of {_processes(owners)}")
    return " and ".join(parts)


def _processes(pids: Collection[str]) -> str:
    return f"{len(pids)} processes" if len(pids) > 1 else f"process {next(iter(pids))}"


def idle_words(labels: Sequence[str], idle: Range, span_ns: int, outside_ns: int = 0) -> str:
    """Return ``GPU 0 was idle for about 97 % of 2.7s (12 % proved, 9 % start-up and end)``."""
    which = devices_text(labels)
    if not span_ns:
        return f"Nothing is known about {which} yet: no GPU work completed in this time"
    were = "was" if len(labels) == 1 else "were"
    sure = format_percent(100 * idle.lower / span_ns)
    if idle.estimate is None:
        most = format_percent(100 * idle.upper / span_ns)
        return f"{which} {were} idle for {sure} to {most} % of {format_ns(span_ns)}"
    share = format_percent(100 * idle.estimate / span_ns)
    if share == sure:
        return f"{which} {were} idle for {sure} % of {format_ns(span_ns)}, proved"
    start = 100 * outside_ns / span_ns
    begun = f", {format_percent(start)} % start-up and end" if start >= _WORTH_REPORTING else ""
    return f"{which} {were} idle for about {share} % of {format_ns(span_ns)} ({sure} % proved{begun})"


# -- savings ------------------------------------------------------------------------------------------


def what_if_text(report: Report) -> str:
    """Return ``A step takes 78.0ms; estimated with C12 fixed: 29.0ms to 31.0ms, with C04 as well: …``."""
    rows = report.what_if
    if report.steps is not None and report.steps.long is not None:
        return ""
    if not rows or (len(rows) == 1 and len(report.findings) > 1):
        return ""
    first, *others = rows
    more = "".join(f", with {one.cause} as well: {_left(one)}" for one in others)
    return (
        f"A step takes {format_ns(first.before_ns)}; estimated with {first.cause} fixed: "
        f"{_left(first)}{more}."
    )


def _left(one: WhatIf) -> str:
    """Return the rest of a step, as a range where its ends differ."""
    after = format_ns(one.after_ns)
    return after if one.after_ns <= NEAR * one.least_ns else f"{format_ns(one.least_ns)} to {after}"


def saved_of_step(finding: Finding, report: Report) -> tuple[int, int] | None:
    """Return (the most that its change saves of a step, the step), ns; None without steps of its process."""
    steps = report.steps
    if steps is None or steps.pid != finding.pid or not steps.count or steps.long is not None:
        return None
    return min(finding.gain.ns // steps.count, steps.usual_ns), steps.usual_ns


def saves_text(finding: Finding, report: Report) -> str:
    """Return ``saves up to 2.41s (512 J): 70.9ms of each 78.0ms step``."""
    step = saved_of_step(finding, report)
    each = "" if step is None else f": {format_ns(step[0])} of each {format_ns(step[1])} step"
    because = f" ({finding.gain.because})" if finding.gain.because else ""
    if not finding.gain.ns and because:
        return f"saves nothing more{because}"
    joules = saved_joules(report, finding, finding.gain.ns)
    energy = f" ({format_joules(joules)})" if joules is not None else ""
    return f"saves up to {format_ns(finding.gain.ns)}{energy}{each}{because}"


# -- blocks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindingBlock:
    """One finding in words, in the order in which it is shown.

    Attributes:
        tag: Cause and level: ``C12, proved``.
        cost: ``GPU idle: about 1.2s (1.0s proved, at most 1.6s), 44–52 % of the time, 12.0ms a step``.
        links: The chain: (layer, sentence, figures of it) each.
        lists: (heading, sentences) each, without empty ones.
        saves: The saving of the fix.
        moments: ``worst at 1.250, 3.000 s``, "" without any.
    """

    title: str
    tag: str
    cost: str
    links: tuple[tuple[str, str, str], ...]
    lists: tuple[tuple[str, tuple[str, ...]], ...]
    saves: str
    moments: str

    def listed(self, heading: str) -> tuple[str, ...]:
        """Return the sentences under a heading."""
        return dict(self.lists).get(heading, ())


EVIDENCE, RULED_OUT, ADVICE = "evidence", "ruled out", "to change"


def finding_block(finding: Finding, report: Report) -> FindingBlock:
    """Return a finding of a report in words."""
    kind = "GPU idle" if finding.kind == "idle" else "time lost"
    share = ""
    if report.span_ns and loss_ns(finding.loss):
        share = f", {share_text(finding.loss, report.span_ns)} % of the time"
    each = f", {format_ns(finding.per_step_ns)} a step" if finding.per_step_ns else ""
    moments = ", ".join(f"{moment / 1e9:.3f}" for moment in finding.moments_ns)
    lists = (
        (EVIDENCE, finding.evidence),
        (RULED_OUT, finding.ruled_out),
        (ADVICE, finding.advice),
    )
    alike = any(one.title == finding.title and one.pid != finding.pid for one in report.findings)
    return FindingBlock(
        f"{finding.title} (process {finding.pid})" if alike else finding.title,
        f"{finding.cause}, {finding.level}",
        f"{kind}: {loss_text(finding.loss, finding.idle_level)}{share}{each}",
        tuple((link.layer, link.text, link_figures(link)) for link in finding.chain),
        tuple((heading, texts) for heading, texts in lists if texts),
        saves_text(finding, report),
        f"worst at {moments} s" if moments else "",
    )


def link_figures(link: Link) -> str:
    """Return ``1.2s (40 times)``: a link's time, and its number of records."""
    return f"{format_ns(link.ns)} ({format_times(link.events)})"


def steps_text(steps: StepFacts) -> str:
    """Return ``259 steps of 46.3ms each, by the calls of thread 7``; of uneven ones sum and long ones."""
    text = f"{steps.count} steps of {format_ns(steps.usual_ns)} each"
    if (far := steps.long) is not None:
        many = "1 long one takes" if far.count == 1 else f"{far.count} long ones take"
        which = ", ".join(f"{format_ns(one.ns)} at {one.time_ns / 1e9:.3f} s" for one in far.longest)
        text = (
            f"{steps.count} steps, {format_ns(far.total_ns)} together: {many} "
            f"{format_ns(far.ns)} ({which}), the median is {format_ns(steps.median_ns)}"
        )
    unclear = ""
    if steps.together > 1:
        unclear = f"; each {steps.together} may be one step of the program, since one of them takes longer"
    return f"{text}, by the calls of thread {steps.tid}{unclear}"


def storm_text(storm: StormCost) -> str:
    """Return the cost of a thread that is switched very often."""
    return (
        f"{storm.name} ({storm.tid} of {storm.pid}) was preempted "
        f"{format_count(storm.switches_per_second)} times a second; GPU time lost while it waited for "
        f"a CPU: {format_ns(storm.gpu_ns) if storm.gpu_ns else '0 ms'}"
    )


def remainder(report: Report) -> tuple[tuple[str, str, int], ...]:
    """Return (key in JSON, words, ns) of idle time without a finding, and of lost records if any."""
    parts = (
        ("outside_ns", "outside the loop (start-up, end, first use)", report.outside_ns),
        ("small_ns", "small gaps", report.small_ns),
        ("unexplained_ns", "unexplained", report.unexplained_ns),
        ("unknown_ns", "excluded, records are missing", report.unknown_ns),
    )
    return tuple(part for part in parts if part[2] or part[0] != "unknown_ns")


def remainder_text(report: Report) -> str:
    """Return the same as one line: ``outside the loop (…) 1.2s; small gaps 3.0ms; unexplained 0``."""
    return "; ".join(f"{words} {_ns(ns)}" for _key, words, ns in remainder(report))


def levels_used(report: Report) -> Iterable[tuple[str, str]]:
    """Return the levels in the report, each with its meaning."""
    used = {finding.level for finding in report.findings}
    used |= {report.diagnosis.level} if report.diagnosis is not None else set()
    return [(level, meaning) for level, meaning in LEVELS.items() if level in used]


# The first line of an explanation: the class, the cause, the line, and what it costs.

_NO_LOOP, _NAMED = "No loop", 2  # one-offs that are named
_MOSTLY, _IDLE = 0.5, 0.1  # of the span: one-offs that come first; idle time that needs a reason
_GROWN = 1.5  # times as long: a growth for the first line


def verdict(
    labels: Sequence[str],
    accounts: Sequence[Account],
    idle: Range,
    span_ns: int,
    findings: Sequence[Finding],
    diagnosis: Diagnosis | None,
    unexplained_ns: int,
    once: Sequence[OneOff] = (),
    steps: StepFacts | None = None,
) -> str:
    """Return one sentence or two: ``Input-bound: … [C12, proved]. GPU 0 was idle for about 97 % of …``.

    Where most of the time is no loop's, that comes first.
    """
    text = _of_the_loop(labels, accounts, idle, span_ns, findings, diagnosis, unexplained_ns, once)
    grown = steps.growth if steps is not None else None
    if grown is not None and grown.last_ns >= _GROWN * grown.first_ns:
        text += (
            f" Its steps grow from {format_ns(grown.first_ns)} to {format_ns(grown.last_ns)}: {grown.part}."
        )
    if sum(one.ns for one in once) < _MOSTLY * span_ns or text.startswith(_NO_LOOP):
        return text
    return f"{_NO_LOOP} for most of the time: {_of_once(once)}. {text}"


def of_gpus(report: Report, gpus: Collection[int], elsewhere: Collection[int]) -> Report:
    """Return the report with these GPUs, and without findings of the processes ``elsewhere``."""
    labels = {f"GPU {index}" for index in gpus}
    shown = tuple(gpu for gpu in report.gpus if gpu.label in labels)
    accounts = [gpu.account for gpu in shown]
    idle, span_ns = whole(accounts), sum(gpu.span_ns for gpu in shown)
    parts = [(place, _part_on(one, gpus)) for place, one in enumerate(report.findings)]
    parts = [(place, part) for place, part in parts if part and report.findings[place].pid not in elsewhere]
    most_ns = max(idle.upper, idle.estimate or 0)
    findings = tuple(_of_part(report.findings[place], part, most_ns) for place, part in parts)
    diagnosis = report.diagnosis
    if diagnosis is not None and diagnosis.lead is not None:
        here = [place for place, _part in parts]
        lead = here.index(diagnosis.lead) if diagnosis.lead in here else None
        evidence = diagnosis.evidence
        if len(shown) < len(report.gpus):  # the share is that of all GPUs
            evidence = tuple(text for text in evidence if not text.startswith(ACCOUNTS))
        diagnosis = replace(diagnosis, lead=lead, evidence=evidence) if lead is not None else None
    its_steps = report.steps is None or report.steps.pid not in elsewhere
    # the report does not have it by GPU: on these at most their proved idle time
    unexplained_ns = min(report.unexplained_ns, idle.lower)
    sentence = report.verdict
    if len(shown) < len(report.gpus):
        names = [gpu.label for gpu in shown]
        sentence = verdict(names, accounts, idle, span_ns, findings, diagnosis, unexplained_ns)
    return replace(
        report,
        gpus=shown,
        steps=report.steps if its_steps else None,
        what_if=report.what_if if its_steps else (),
        events=tuple(one for one in report.events if one.pid not in elsewhere),
        findings=findings,
        diagnosis=diagnosis,
        idle=idle,
        span_ns=span_ns,
        unexplained_ns=unexplained_ns,
        verdict=sentence,
    )


def _part_on(finding: Finding, gpus: Collection[int]) -> float:
    """Return the share of a finding's loss on some GPUs; 1.0 where it is not known by GPU."""
    if not finding.gpu_shares:
        return 1.0
    return round(sum(share for index, share in finding.gpu_shares if index in gpus), 9)


def _of_part(finding: Finding, part: float, idle_ns: int) -> Finding:
    """Return a finding with a part of its loss; its fix saves no more than the idle time there."""
    loss, gain = finding.loss, finding.gain
    lower, upper, estimate = (
        None if ns is None else int(ns * part) for ns in (loss.lower, loss.upper, loss.estimate)
    )
    most_ns = idle_ns + gain.work_ns if finding.kind == "idle" else gain.ns
    return replace(
        finding,
        loss=Range(lower or 0, upper or 0, estimate),
        per_step_ns=None if finding.per_step_ns is None else int(finding.per_step_ns * part),
        gain=replace(gain, ns=min(gain.ns, most_ns)),
    )


def _of_once(once: Sequence[OneOff]) -> str:
    return " and ".join(one.text() for one in once[:_NAMED])


def _of_the_loop(
    labels: Sequence[str],
    accounts: Sequence[Account],
    idle: Range,
    span_ns: int,
    findings: Sequence[Finding],
    diagnosis: Diagnosis | None,
    unexplained_ns: int,
    once: Sequence[OneOff],
) -> str:
    idleness = _capital(idle_words(labels, idle, span_ns, sum(one.outside_ns for one in accounts)))
    lead = diagnosis.lead if diagnosis is not None else None
    if diagnosis is not None and diagnosis.kind is not None and lead is None:
        text = f"{_capital(diagnosis.title)} ({diagnosis.level}): {diagnosis.evidence[0]}. {idleness}"
        return f"{text}; the largest loss: {_cause(findings[0])}." if findings else f"{text}."
    if findings:
        first = findings[lead or 0]
        return f"{_of_class(diagnosis, _cause(first))}. {idleness}{_of_it(first)}."
    if diagnosis is not None and diagnosis.kind is None and diagnosis.level == Level.PROVED:
        return f"{idleness}; {diagnosis.evidence[0]}."
    if unexplained_ns > 0.02 * span_ns:
        return f"{idleness}; for {format_ns(unexplained_ns)} of it the chain is not known."
    if idle.estimate is None and idle.upper > 0.5 * span_ns:
        return f"{idleness}; the rest is unknown, because the program seldom waits for it."
    if once and idle.middle > _IDLE * span_ns:
        return f"{_NO_LOOP} loses this: {_of_once(once)}. {idleness}."
    return f"{idleness}: no recurring stall."


def _of_class(diagnosis: Diagnosis | None, cause: str) -> str:
    """Return the cause with its class before it, unless the cause names its class."""
    if diagnosis is None or not diagnosis.kind:
        return cause
    title, _, explained = diagnosis.title.partition(" (")
    words = cause.lower()
    if all(word in words.split() for word in title.lower().split()):
        return _capital(cause)
    if explained and explained.rstrip(")").lower() in words:
        return f"{_capital(title)}: {cause}"
    return f"{_capital(diagnosis.title)}: {cause}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cause(finding: Finding) -> str:
    where = f" at {finding.line.text()}" if finding.line is not None else ""
    return f"{finding.title}{where} [{finding.cause}, {finding.level}]"


def _of_it(finding: Finding) -> str:
    """Return the cost of the cause; other than idle time stands apart."""
    loss = finding.loss
    if finding.kind != "idle":
        return f"; this takes {format_ns(int(loss.middle))}"
    return f", {cost_text(loss)} of it because of this"


# Notes of a report on its own figures: lost events, the error of estimates, unknown time.

_SOURCES = {
    "nvml": "NVML's samples",
    "learned": "kernel times learned from the program's waits",
    "both": "NVML's samples and kernel times learned from the program's waits, which agree",
}


def about_ends(facts: Facts, start_ns: int) -> Iterator[str]:
    """Yield the processes that the kernel killed for lack of memory."""
    for pid, process in sorted(facts.processes.items()):
        if (moment := process.get("oom_ns")) is not None:
            yield (
                f"the kernel killed {facts.process_title(pid)} "
                f"{format_ns(int(moment) - start_ns)} after the start of the recording: out of memory"
            )


def about_figures(accounts: Sequence[Account], lost_events: int, unknown_ns: int) -> Iterator[str]:
    """Yield the notes."""
    if lost_events:
        left_out = format_ns(unknown_ns) if unknown_ns else "0"
        yield f"{lost_events} events are lost; {left_out} of gaps around them are left out"
    for one in accounts:
        if one.source is not None and one.estimated_ns > 0.02 * one.span_ns:
            yield (
                f"{format_ns(one.estimated_ns)} of idle time is estimated, give or take "
                f"{format_ns(one.error_ns)}, from {_SOURCES[one.source]}"
            )
        if not one.agrees:
            yield (
                "NVML's samples and the kernel times learned from the program's waits disagree about the "
                "idle time: everything that rests on it is a hint"
            )
        if one.unknown_ns > 0.2 * one.span_ns:
            yield (
                f"for {format_ns(one.unknown_ns)} it is unknown whether the GPU had work: no call waited "
                "for it there, and NVML has too few samples"
            )


# Energy: of GPUs, processes and steps, and the most that a fix saves.

_MOST_NAMED = 3


def step_joules(report: Report) -> float | None:
    """Return the energy of a step: its length times the mean power of its process's part."""
    steps, energy = report.steps, report.energy
    watts = energy.watts_of(steps.pid) if energy is not None and steps is not None else None
    if steps is None or watts is None or steps.long is not None:
        return None
    return watts * steps.usual_ns / NS_PER_S


def saved_joules(report: Report, finding: Finding, ns: float) -> float | None:
    """Return the energy of some time at the mean power of the finding's GPUs; None where that is unknown.

    An upper bound: time that is saved is saved on all of them, and an idle GPU seldom takes its mean power.
    """
    gpus = [index for index, _share in finding.gpu_shares]
    watts = report.energy.watts_on(gpus) if report.energy is not None else None
    return watts * ns / NS_PER_S if watts else None


def energy_text(report: Report) -> str:
    """Return ``Energy: GPU 0 took 563 J (212 W), 16 J a step; by SM time process 7 400 J, …``, or ""."""
    energy = report.energy
    if energy is None or not energy.gpus:
        return ""
    named = [
        f"GPU {index} took {format_joules(gpu.joules)} ({gpu.watts:.0f} W)"
        for index, gpu in list(energy.gpus.items())[:_MOST_NAMED]
    ]
    if len(energy.gpus) > 1:
        more = f", {len(energy.gpus) - _MOST_NAMED} more" if len(energy.gpus) > _MOST_NAMED else ""
        named = [f"{format_joules(energy.joules)} in all ({', '.join(named)}{more})"]
    a_step = step_joules(report)
    each = f", {format_joules(a_step)} a step" if a_step is not None else ""
    most = sorted(energy.processes.items(), key=lambda one: -one[1])[:_MOST_NAMED]
    whose = ", ".join(f"process {pid} {format_joules(joules)}" for pid, joules in most)
    shares = f"; by SM time {whose}" if len(energy.processes) > 1 else ""
    return f"Energy: {named[0]}{each}{shares}."


def energy_figures(report: Report, energy: Energy) -> EnergyFigures:
    """Return the key ``energy`` of docs/json.md."""
    most_first = sorted(energy.processes.items(), key=lambda one: -one[1])
    return EnergyFigures(
        tuple(OneGpu(index, gpu) for index, gpu in energy.gpus.items()),
        tuple(ProcessEnergy(pid, joules, energy.watts_of(pid) or 0.0) for pid, joules in most_first),
        step_joules(report),
        tuple(saved_joules(report, finding, finding.gain.ns) for finding in report.findings),
    )
