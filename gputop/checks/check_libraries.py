"""CUDA and NCCL libraries: files, processes that map them, probe sites, and whether probes fire."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gputop.checks import selfhit
from gputop.checks.fact import Fact, Section, missing, note, ok
from probes import api
from probes.code import elf, libraries, parsing
from probes.ebpf import degradation
from probes.files import untrusted_files

SHARED, STATIC, STRIPPED = "shared", "static", "static, stripped"
_FEW = 8  # process numbers in a line


@dataclass(frozen=True, slots=True)
class Symbol:
    """A traced function."""

    name: str  # exported name
    offset: int  # probe site in the file
    cheap: bool  # whether the kernel emulates the instruction there; else each hit is single-stepped
    hits: int | None = None  # counted since the check attached; None if not counted
    minimal: bool = False  # traced even without uprobe_multi, where probes are expensive


@dataclass(frozen=True, slots=True)
class SelfHit:
    """The check's own calls of a function of the library."""

    symbol: str  # the function
    calls: int  # number of calls
    counted: int  # number of hits of its probe
    error: str = ""  # why it was not called, or ``""``
    refused: bool = False  # not called because the kernel refused the probe
    withheld: bool = False  # not called because the library is writable by other users
    gone: bool = False  # no probe because the file has vanished: its process may have ended

    @property
    def seen(self) -> bool:
        """True if every call was counted; other processes' calls may add to them."""
        return 0 < self.calls <= self.counted


@dataclass(frozen=True, slots=True)
class LibraryCheck:
    """A library file."""

    target: libraries.Target  # the file
    pids: tuple[int, ...]  # processes that have it mapped
    build_id: str = ""  # GNU build id, or ``""``
    soname: str = ""  # DT_SONAME, or ``""``
    linkage: str = SHARED  # ``shared``, ``static`` (the runtime within an executable) or ``static, stripped``
    symbols: tuple[Symbol, ...] = ()  # its traced functions
    # the harmless function that the check calls; None if the library does not have it
    witness: Symbol | None = None
    error: str = ""  # why it cannot be probed, or ``""``
    gone: bool = False  # the error is that the file has vanished, as when its process has ended
    version: str = ""  # the library's own version number, or ``""``
    self_hit: SelfHit | None = field(default=None)  # None if not tried


def find(
    pids: Iterable[int] | None, environment: Mapping[str, str], interpreters: Iterable[Path] = ()
) -> list[LibraryCheck]:
    """Return the libraries mapped by these processes; for None by all, and the installed ones too."""
    mapped_by: dict[tuple[int, int], set[int]] = {}
    targets: dict[tuple[int, int], libraries.Target] = {}
    for pid in sorted(libraries.all_pids() if pids is None else pids):
        for target in libraries.mapped((pid,)):
            targets.setdefault(target.identity, target)
            if pid != os.getpid():
                mapped_by.setdefault(target.identity, set()).add(pid)
    if pids is None:
        for target in libraries.installed(environment, interpreters):
            targets.setdefault(target.identity, target)
    found = [look(target, tuple(sorted(mapped_by.get(identity, ())))) for identity, target in targets.items()]
    # a program with the runtime linked in loads the driver library at run time: others are not searched
    users = {
        pid
        for target in targets.values()
        if target.layer == api.DRIVER
        for pid in mapped_by.get(target.identity, ())
    }
    return found + _linked_in(users)


def _linked_in(pids: Iterable[int]) -> list[LibraryCheck]:
    """Return the runtimes linked into the executables of these processes."""
    users: dict[tuple[int, int], set[int]] = {}
    targets: dict[tuple[int, int], libraries.Target] = {}
    for pid in sorted(pids):
        target = libraries.executable(pid)
        if target is not None:
            targets.setdefault(target.identity, target)
            users.setdefault(target.identity, set()).add(pid)
    found = []
    for identity, target in targets.items():
        runtime = parsing.linked_runtime(target)
        if runtime is libraries.Runtime.VISIBLE:
            found.append(look(target, tuple(sorted(users[identity]))))
        elif runtime is libraries.Runtime.STRIPPED:
            found.append(LibraryCheck(target, tuple(sorted(users[identity])), linkage=STRIPPED))
    return found


def look(target: libraries.Target, pids: tuple[int, ...] = ()) -> LibraryCheck:
    called = selfhit.SYMBOLS[target.layer]
    try:
        with untrusted_files.opened(target.path, target.identity) as file:
            probes, build_id, soname, begin = parsing.library_in(target, file, called)
    except (OSError, elf.ElfError) as error:
        text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        # a file that only an ended process led to is not missing
        return LibraryCheck(target, pids, error=text, gone=isinstance(error, FileNotFoundError))
    return LibraryCheck(
        target=target,
        pids=pids,
        build_id=build_id,
        soname=soname,
        linkage=STATIC if target.static else SHARED,
        symbols=tuple(
            Symbol(probe.symbol, probe.offset, probe.cheap, minimal=degradation.is_minimal(probe.cookie))
            for probe in probes
        ),
        witness=witness_at(called, begin),
    )


def witness_at(symbol: str, begin: int | None) -> Symbol | None:
    """Return the function that the check calls itself, probed at its first instruction."""
    return None if begin is None else Symbol(symbol, begin, cheap=False)


def _as_data(library: LibraryCheck) -> dict[str, Any]:
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


def _identity_facts(library: LibraryCheck) -> list[Fact]:
    device, inode = library.target.identity
    if library.gone:
        text = f"{library.target.shown} went away during the check"
        return [note(text, "its program has ended: run the check again while one with CUDA runs")]
    if library.error:
        what = f"{library.target.shown}: {library.error}"
        return [missing(what, "reinstall the library, or remove the file", blocks=False)]
    what = " ".join(filter(None, (library.target.layer, library.linkage, library.version or library.soname)))
    where = f"device {os.major(device)}:{os.minor(device)} inode {inode}"
    build = f"build id {library.build_id[:12]}" if library.build_id else "no build id"
    users = ", ".join(map(str, library.pids[:_FEW])) + (", …" if len(library.pids) > _FEW else "")
    mapped = f"mapped by {users}" if users else "not mapped"
    return [ok(f"{library.target.shown}: {what}"), note(f"{where}, {build}, {mapped}")]


def _symbols_fact(library: LibraryCheck) -> Fact:
    if library.linkage == STRIPPED:
        return note(
            "runtime layer blind: the CUDA runtime is linked in and its symbols are removed; "
            "driver calls are seen",
            "link with -cudart shared, or do not strip the program",
        )
    cheap = sum(symbol.cheap for symbol in library.symbols)
    stepped = len(library.symbols) - cheap
    text = f"{len(library.symbols)} functions: {cheap} cheap, {stepped} single-stepped"
    counted = [symbol.hits for symbol in library.symbols if symbol.hits is not None]
    if counted:
        text += f"; {sum(counted)} hits in this check"
    return ok(text) if library.symbols else note(f"{text}; nothing in it is traced")


def _self_fact(hit: SelfHit, *, others_work: bool) -> Fact:
    if hit.refused:
        text = f"the kernel refused a probe on {hit.symbol}: {hit.error}"
        return missing(text, "root on the host; gputop check -v shows the log", blocks=not others_work)
    if hit.gone:
        text = f"{hit.symbol} was not called: the library went away during the check ({hit.error})"
        return note(text, "its program has ended: run the check again while one with CUDA runs")
    if hit.withheld:
        text = f"{hit.symbol} was not called by the check itself, since that runs the library: {hit.error}"
        return note(text, "gputop check --call-all calls it anyway, confined and as user nobody")
    if hit.error:
        return note(f"{hit.symbol} was not called by the check itself: {hit.error}")
    if hit.seen:
        return ok(f"{hit.symbol} called {hit.calls} times by the check: {hit.counted} counted")
    return missing(
        f"{hit.symbol} called {hit.calls} times by the check, and only {hit.counted} counted",
        "please report: this kernel accepts probes and does not fire them",
    )


def _details(library: LibraryCheck) -> list[str]:
    lines = [library.target.shown]
    for symbol in library.symbols:
        hits = "" if symbol.hits is None else f"{symbol.hits:>8} hits"
        lines.append(f"  {symbol.name:<42} {_site(symbol):<14} {hits}".rstrip())
    return lines


def libraries_section(found: Iterable[LibraryCheck], *, all_traced: bool = True) -> Section:
    """Return the lines about libraries; not ``all_traced``: only of the minimal functions."""
    found = list(found)
    others_work = any(library.self_hit is not None and library.self_hit.seen for library in found)
    facts: list[Fact] = []
    details: list[str] = []
    data = []
    for library in found:
        if not all_traced:
            library = replace(library, symbols=tuple(one for one in library.symbols if one.minimal))
        facts += _identity_facts(library)
        if not library.error:
            facts.append(_symbols_fact(library))
        if library.self_hit is not None:
            facts.append(_self_fact(library.self_hit, others_work=others_work))
        details += _details(library)
        data.append(_as_data(library))
    if not data:
        facts.append(note("no CUDA or NCCL library found; libraries loaded later are found then"))
    return Section("libraries", tuple(facts), data, tuple(details))
