"""The CUDA and NCCL libraries: which files, mapped by whom, probed where, and whether probes are hit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gputop.checks import selfhit
from gputop.checks.fact import Fact, Section, missing, note, ok
from probes import elf, libraries

SHARED, STATIC = "shared", "static"
_FEW = 8  # process numbers in a line


@dataclass(frozen=True, slots=True)
class Symbol:
    """A traced function: where its probe sits, and whether a hit there is cheap."""

    name: str
    offset: int
    cheap: bool
    hits: int | None = None


@dataclass(frozen=True, slots=True)
class SelfHit:
    """The check's own calls of a function of the library: ``counted`` of ``calls`` were seen."""

    symbol: str
    calls: int
    counted: int
    error: str = ""

    @property
    def seen(self) -> bool:
        """Whether every call was counted. Others may call it too."""
        return 0 < self.calls <= self.counted


@dataclass(frozen=True, slots=True)
class Library:
    """A library file.

    Attributes:
        target: The file.
        pids: Processes that have it mapped.
        build_id: GNU build id, or ``""``.
        soname: DT_SONAME, or ``""``.
        linkage: ``shared``, or ``static``: the runtime within an executable.
        symbols: What is traced in it.
        witness: The harmless function and its probe site; None if the library does not have it.
        error: Why it cannot be probed, or ``""``.
        version: What the library says of itself, or ``""``.
        self_hit: None when it was not tried.
    """

    target: libraries.Target
    pids: tuple[int, ...]
    build_id: str = ""
    soname: str = ""
    linkage: str = SHARED
    symbols: tuple[Symbol, ...] = ()
    witness: Symbol | None = None
    error: str = ""
    version: str = ""
    self_hit: SelfHit | None = field(default=None)


def find(
    pids: Iterable[int] | None, environment: Mapping[str, str], interpreters: Iterable[Path] = ()
) -> list[Library]:
    """Every library that these processes have mapped; for None all processes', and all installed ones."""
    mapped_by: dict[tuple[int, int], set[int]] = {}
    targets: dict[tuple[int, int], libraries.Target] = {}
    wanted = libraries.all_pids() if pids is None else pids
    for pid in sorted(wanted):
        for target in libraries.mapped((pid,)):
            targets.setdefault(target.identity, target)
            if pid != os.getpid():
                mapped_by.setdefault(target.identity, set()).add(pid)
    if pids is None:
        for target in libraries.installed(environment, interpreters):
            targets.setdefault(target.identity, target)
    return [look(target, tuple(sorted(mapped_by.get(identity, ())))) for identity, target in targets.items()]


def look(target: libraries.Target, pids: tuple[int, ...] = ()) -> Library:
    """Reads one library file."""
    try:
        probes, image = libraries.probes_of(target)
    except (OSError, elf.ElfError) as error:
        return Library(target, pids, error=str(error))
    symbols = tuple(Symbol(probe.symbol, probe.offset, True) for probe in probes)
    return Library(
        target=target,
        pids=pids,
        build_id=image.build_id,
        soname=image.soname,
        linkage=SHARED,
        symbols=symbols,
        witness=witness_in(image, selfhit.SYMBOLS[target.layer]),
    )


def witness_in(image: elf.Library, symbol: str) -> Symbol | None:
    """The function that the check calls itself, with its probe site."""
    offset = image.functions.get(symbol)
    return None if offset is None else Symbol(symbol, offset, True)


def _as_data(library: Library) -> dict[str, Any]:
    device, inode = library.target.identity
    hit = library.self_hit
    return {
        "path": library.target.shown,
        "device": f"{os.major(device)}:{os.minor(device)}",
        "inode": inode,
        "build_id": library.build_id,
        "soname": library.soname,
        "version": library.version,
        "layer": library.target.layer,
        "linkage": library.linkage,
        "pids": list(library.pids),
        "error": library.error,
        "symbols": [
            {"name": symbol.name, "offset": symbol.offset, "site": _site(symbol), "hits": symbol.hits}
            for symbol in library.symbols
        ],
        "self_hit": None
        if hit is None
        else {"symbol": hit.symbol, "calls": hit.calls, "counted": hit.counted, "error": hit.error},
    }


def _site(symbol: Symbol) -> str:
    return "cheap" if symbol.cheap else "single-stepped"


def _identity_facts(library: Library) -> list[Fact]:
    device, inode = library.target.identity
    if library.error:
        what = f"{library.target.shown}: {library.error}"
        return [missing(what, "reinstall the library, or remove the file", blocks=False)]
    what = " ".join(filter(None, (library.target.layer, library.linkage, library.version or library.soname)))
    where = f"device {os.major(device)}:{os.minor(device)} inode {inode}"
    build = f"build id {library.build_id[:12]}" if library.build_id else "no build id"
    users = ", ".join(map(str, library.pids[:_FEW])) + (", …" if len(library.pids) > _FEW else "")
    mapped = f"mapped by {users}" if users else "mapped by nobody"
    return [ok(f"{library.target.shown}: {what}"), note(f"{where}, {build}, {mapped}")]


def _symbols_fact(library: Library) -> Fact:
    cheap = sum(symbol.cheap for symbol in library.symbols)
    stepped = len(library.symbols) - cheap
    text = f"{len(library.symbols)} functions: {cheap} cheap, {stepped} single-stepped"
    counted = [symbol.hits for symbol in library.symbols if symbol.hits is not None]
    if counted:
        text += f"; {sum(counted)} hits in this check"
    return ok(text) if library.symbols else note(f"{text}; nothing in it is traced")


def _self_fact(hit: SelfHit) -> Fact:
    if hit.error:
        return note(f"{hit.symbol} was not called by the check itself: {hit.error}")
    if hit.seen:
        return ok(f"{hit.symbol} called {hit.calls} times by the check: {hit.counted} counted")
    return missing(
        f"{hit.symbol} called {hit.calls} times by the check, and only {hit.counted} counted",
        "tell us: this kernel takes probes and does not fire them",
    )


def _details(library: Library) -> list[str]:
    lines = [library.target.shown]
    for symbol in library.symbols:
        hits = "" if symbol.hits is None else f"{symbol.hits:>8} hits"
        lines.append(f"  {symbol.name:<42} {_site(symbol):<14} {hits}".rstrip())
    return lines


def libraries_section(found: Iterable[Library]) -> Section:
    """The lines about libraries."""
    facts: list[Fact] = []
    details: list[str] = []
    data = []
    for library in found:
        facts += _identity_facts(library)
        if not library.error:
            facts.append(_symbols_fact(library))
        if library.self_hit is not None:
            facts.append(_self_fact(library.self_hit))
        details += _details(library)
        data.append(_as_data(library))
    if not data:
        facts.append(note("no CUDA or NCCL library in sight: one that is loaded later is found then"))
    return Section("libraries", tuple(facts), data, tuple(details))
