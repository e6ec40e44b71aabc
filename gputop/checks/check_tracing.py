"""Trial of tracing: load and attach the probes, call a function of each library, count the hits."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gputop.checks import selfhit
from gputop.checks.check_bcc import mapped_library
from gputop.checks.check_libraries import LibraryCheck, SelfHit, Symbol, witness_at
from gputop.checks.fact import Fact, Section, missing, note, ok
from probes.code import elf, parsing
from probes.ebpf import attacher, hits, loader
from probes.files import untrusted_files

_KEPT_LINES = 40


@contextmanager
def held_back() -> Iterator[Callable[[], list[str]]]:
    """Context manager: redirect standard error to a file; the yielded function returns its last lines."""
    lines: list[str] = []
    sys.stderr.flush()
    try:
        file = tempfile.TemporaryFile("w+b")  # noqa: SIM115
        saved = os.dup(2)
    except OSError:  # no place for it: then it is seen at once
        yield lambda: lines
        return
    with file:
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            with suppress(OSError):
                file.seek(0)
                lines += file.read().decode(errors="replace").splitlines()[-_KEPT_LINES:]


_RING_BYTES = 1 << 20
_LIBC_SYMBOL = "gnu_get_libc_version"
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of the trial."""

    tried: bool  # False if it was known beforehand that tracing cannot work
    loaded_ms: float | None = None  # time of loading, with compiling if needed; None when it failed
    cached: bool = False  # the programs had been compiled at an earlier start
    cache: str = ""  # folder of compiled programs, or ``""``
    cache_problem: str = ""  # why they are not cached, or ``""``
    tracepoints: int = 0  # scheduler tracepoints attached
    refusals: tuple[str, ...] = ()  # libraries that the kernel or gputop refused, a sentence each
    error: str = ""  # why the programs are not loaded or attached, or ``""``
    log: tuple[str, ...] = ()  # messages of bcc, the kernel's verifier and libraries
    libc: SelfHit | None = None  # the self-hit in the C library, tried if there is no other library


@dataclass(frozen=True, slots=True)
class CountedFile:
    """A file whose functions are counted, and the one of them that the check calls."""

    path: Path
    identity: untrusted_files.Identity
    symbols: tuple[Symbol, ...]
    witness: Symbol | None
    first_row: int

    @property
    def all_symbols(self) -> tuple[Symbol, ...]:
        return (*self.symbols, self.witness) if self.witness else self.symbols


def try_tracing(
    found: Sequence[LibraryCheck], seconds: float, *, call_all: bool = False
) -> tuple[Trial, list[LibraryCheck]]:
    """Attach everything; return the result and the libraries with their hits.

    Args:
        found: The libraries.
        seconds: Shortest time in which hits are counted.
        call_all: Also call libraries writable by non-root users.
    """
    with held_back() as log:
        try:
            trial, libraries = _try(found, seconds, call_all=call_all)
        except loader.ProbeError as error:
            trial, libraries = Trial(True, error=str(error), log=error.log), list(found)
        except OSError as error:
            text = f"the kernel refused while the probes were tried: {error.strerror}"
            trial, libraries = Trial(True, error=text), list(found)
    return replace(trial, log=(*trial.log, *log())), libraries


def _try(
    found: Sequence[LibraryCheck], seconds: float, *, call_all: bool
) -> tuple[Trial, list[LibraryCheck]]:
    started = time.monotonic()
    # no process is watched: the probes are accepted and attached as always, and make no records
    programs = loader.load(loader.Options(False, _RING_BYTES, os.getpid(), "off"))
    loaded_ms = round((time.monotonic() - started) * _MS, 1)
    compiled = programs.module.compiled
    attachments = attacher.Attachments(programs)
    try:
        attachments.attach_scheduler()
        if programs.multi:  # as perf events it would take minutes until the last one is gone
            attachments.attach(library.target for library in found if library.symbols)
        libraries, libc = _count(found, seconds, multi=programs.multi, call_all=call_all)
    finally:
        attachments.close()
    return (
        Trial(
            tried=True,
            loaded_ms=loaded_ms,
            cached=compiled.cached,
            cache=compiled.folder,
            cache_problem=compiled.problem,
            tracepoints=len(programs.tracepoints),
            refusals=tuple(attachments.refusals),
            libc=libc,
        ),
        libraries,
    )


def _count(
    found: Sequence[LibraryCheck], seconds: float, *, multi: bool, call_all: bool
) -> tuple[list[LibraryCheck], SelfHit | None]:
    plan: list[CountedFile] = []
    row = 0
    for library in found:
        # without uprobe_multi probes are expensive: only the check's own call, or a requested wait
        symbols = tuple(symbol for symbol in library.symbols if multi or (symbol.minimal and seconds > 0))
        counted = CountedFile(library.target.path, library.target.identity, symbols, library.witness, row)
        plan.append(counted)
        row += len(counted.all_symbols)
    libc = _libc(row) if not row else None
    counter = hits.HitCounter(row + (1 if libc else 0), multi=multi)
    try:
        without = [attach_to(counter, counted) for counted in plan]
        deadline = time.monotonic() + seconds  # attaching may have to wait for a turn
        libraries = [
            with_self_hit(library, why, call_all=call_all)
            for library, why in zip(found, without, strict=True)
        ]
        libc_hit = _self_call(counter, libc) if libc else None
        time.sleep(max(deadline - time.monotonic(), 0))
        counts = counter.read()
    finally:
        counter.close()
    return [with_hits(*pair, counts) for pair in zip(libraries, plan, strict=True)], libc_hit


_GONE = (errno.ENOENT, errno.ESRCH, errno.ESTALE)  # of a path that was opened a moment ago


@dataclass(frozen=True, slots=True)
class _Without:
    """Why a library has no probe; ``gone``: its file has vanished."""

    error: str
    gone: bool


def attach_to(counter: hits.HitCounter, counted: CountedFile) -> _Without | None:
    """Count the calls of a file; return the obstacle, if any."""
    try:
        file = untrusted_files.opened(counted.path, counted.identity)
    except OSError as error:
        return _Without(error.strerror or str(error), gone=error.errno in _GONE)
    with file:
        try:
            counter.attach(file.path, [symbol.offset for symbol in counted.all_symbols], counted.first_row)
        except OSError as error:
            return _Without(error.strerror or str(error), gone=False)
    return None


def with_self_hit(library: LibraryCheck, without: _Without | None, *, call_all: bool) -> LibraryCheck:
    """Return the library after a call of its harmless function."""
    if library.error or library.witness is None:
        return library
    name = library.witness.name
    if without is not None:
        hit = SelfHit(name, 0, 0, without.error, refused=not without.gone, gone=without.gone)
        return replace(library, self_hit=hit)
    if library.linkage != "shared":
        return replace(library, self_hit=SelfHit(name, 0, 0, "it is part of an executable"))
    target = library.target
    done = selfhit.call(target.path, name, identity=target.identity, any_owner=call_all)
    version = selfhit.shown_version(target.layer, done.version)
    hit = SelfHit(name, done.calls, 0, done.error, withheld=done.withheld)
    return replace(library, version=version, self_hit=hit)


def with_hits(library: LibraryCheck, counted: CountedFile, counts: Sequence[int]) -> LibraryCheck:
    if library.self_hit is not None and (library.self_hit.refused or library.self_hit.gone):
        return library
    by_offset = {
        symbol.offset: counts[counted.first_row + place] for place, symbol in enumerate(counted.all_symbols)
    }
    symbols = tuple(replace(symbol, hits=by_offset.get(symbol.offset)) for symbol in library.symbols)
    hit = library.self_hit
    if hit is not None and library.witness is not None:
        hit = replace(hit, counted=by_offset[library.witness.offset])
    return replace(library, symbols=symbols, self_hit=hit)


def _libc(row: int) -> CountedFile | None:
    path = mapped_library("libc.so")
    try:
        with untrusted_files.opened(path) as file:
            begin = parsing.functions_in(file, [_LIBC_SYMBOL], path).get(_LIBC_SYMBOL)
            identity = file.identity
    except (OSError, elf.ElfError):
        return None
    return CountedFile(Path(path), identity, (), witness_at(_LIBC_SYMBOL, begin), row) if begin else None


def _self_call(counter: hits.HitCounter, libc: CountedFile) -> SelfHit:
    if without := attach_to(counter, libc):
        return SelfHit(_LIBC_SYMBOL, 0, 0, without.error, refused=True)
    function = getattr(ctypes.CDLL(None), _LIBC_SYMBOL)
    for _ in range(selfhit.CALLS):
        function()
    return SelfHit(_LIBC_SYMBOL, selfhit.CALLS, counter.read()[libc.first_row])


def _loading_facts(trial: Trial) -> list[Fact]:
    duration = f"{trial.loaded_ms:.0f} ms"
    if trial.cached:
        return [ok(f"probes load in {duration}; an earlier start compiled them into {trial.cache}")]
    done = f"probes compile and load in {duration}"
    if not trial.cache_problem:
        return [ok(f"{done}; kept in {trial.cache}, as are those of each kind of start")]
    problem = f"each start compiles the probes, which takes a second: {trial.cache_problem}"
    fix = f"room in {trial.cache}, a folder that only this user can write" if trial.cache else "set HOME"
    return [ok(done), note(problem, fix)]


def tracing_section(trial: Trial) -> Section:
    """Return the lines about loading and attaching."""
    data = {key: value for key, value in asdict(trial).items() if key != "libc"}
    if not trial.tried:
        return Section("tracing", (note("not tried: see what is missing above"),), data)
    if trial.error:
        return Section("tracing", (missing(trial.error, "gputop check -v shows the log"),), data, trial.log)
    facts = [*_loading_facts(trial), ok(f"{trial.tracepoints} scheduler tracepoints attach")]
    facts += [missing(text, "gputop goes on without this file", blocks=False) for text in trial.refusals]
    if trial.libc is not None and trial.libc.seen:
        facts.append(ok(f"a probe on the C library's {_LIBC_SYMBOL} counts"))
    elif trial.libc is not None:
        why = trial.libc.error or f"{trial.libc.calls} calls, {trial.libc.counted} counted"
        text = f"a probe on the C library's {_LIBC_SYMBOL} does not count: {why}"
        facts.append(missing(text, "root on the host"))
    return Section("tracing", tuple(facts), data)
