"""Preferences: a small TOML file, documented in docs/screen.md.

An invalid setting is reported on the screen and ignored. As root the file is read only if no other user can
change it: under sudo it is root's file, not the caller's.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gputop.format import clip
from gputop.playback.alerts import MOST_RULES, Rule, RuleError, parse
from gputop.ui.model.own_cost import BUDGET_PERCENT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_BYTES = 65_536
_MOST_SHOWN = 60  # characters of a value
SETTINGS = ("rate", "theme", "glyphs", "hide", "tree", "group", "columns", "alerts", "budget")
RATES_HZ = (0.5, 20.0)
BUDGETS_PERCENT = (0.0, 1_000.0)
THEMES = ("dark", "light", "contrast", "terminal", "mono")
GLYPHS = ("unicode", "ascii")
GROUPS = ("user", "container", "pod", "job", "rank", "gpu")  # what processes can be grouped by


@dataclass(frozen=True, slots=True)
class Preferences:
    """A user's preferences; None or empty: not set."""

    rate_hz: float | None = None  # frames per second
    theme: str = ""  # one of ``THEMES``
    glyphs: str = ""  # one of ``GLYPHS``; "": by the locale
    hide: tuple[str, ...] = ()  # panes hidden at first
    tree: bool = False  # show processes as a tree at first
    group: str = ""  # what processes are grouped by at first, or ""
    # the keys of each table's columns in their order
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alerts: tuple[Rule, ...] = ()  # rules, as of ``--alert``
    # percent of one CPU, above which a live screen is drawn less often; 0: never
    budget_percent: float = BUDGET_PERCENT
    path: str = ""  # the file, even if missing
    problems: tuple[str, ...] = ()  # errors in the file, in sentences


@dataclass(frozen=True, slots=True)
class Startup:
    """The screen's settings at its start."""

    mode: str = "live"  # ``live`` or ``replay``
    rate_hz: float = 4.0  # how often the newest frame is polled
    ascii: bool = False  # draw with ASCII only
    selected_pid: int | None = None  # the process to select when it appears
    title: str = ""  # the watched program or the file, for the header
    preferences: Preferences = field(default_factory=Preferences)  # the user's preferences
    readonly: bool = False  # send no signals
    alerts: tuple[Rule, ...] = ()  # alert rules
    filter: str = ""  # the initial filter of the processes
    gpus: frozenset[int] = frozenset()  # the only GPUs to show; empty for all


USUAL = Startup()


def config_path(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return ``${XDG_CONFIG_HOME:-~/.config}/gputop/config.toml``; None without a home directory."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # a relative path is invalid by the XDG specification
    directory = base if base.startswith("/") else os.path.expanduser("~/.config")
    return Path(directory) / "gputop" / "config.toml" if directory.startswith("/") else None


def load(path: Path, known: Mapping[str, tuple[str, ...]], panes: tuple[str, ...]) -> Preferences:
    """Return the preferences of a file; the defaults if it does not exist.

    Args:
        path: The file.
        known: The keys of each table's columns.
        panes: The panes that can be hidden.
    """
    empty = Preferences(path=str(path))
    try:
        text = _read(path)
        if text is None:
            return empty
        values = tomllib.loads(text)
    except _UnsafeError as error:
        return replace(empty, problems=(str(error),))
    except (OSError, UnicodeDecodeError) as error:
        return replace(empty, problems=(f"{path} cannot be read and is not used: {error}",))
    except (ValueError, RecursionError) as error:  # also a number of more digits than Python reads
        return replace(empty, problems=(f"{path} is not valid TOML and is not used: {error}",))
    return _Reading(path, known, panes).preferences(values)


class _UnsafeError(Exception):
    pass


def _read(path: Path) -> str | None:
    """Return the text of the file; None if it does not exist.

    Raises:
        _UnsafeError: Another user can change it.
    """
    root = os.geteuid() == 0
    if root and not _only_roots(path):
        return None
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if root else 0)
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MOST_BYTES:
            raise _UnsafeError(
                f"{path} is not used: it is not a regular file of at most {MOST_BYTES >> 10} KiB"
            )
        if root:
            _check_owner(path, path, facts)
        return file.read(MOST_BYTES).decode()


def _only_roots(path: Path) -> bool:
    """True if the file exists; checks from the top down, so that checked directories cannot be changed.

    Raises:
        _UnsafeError: Another user can change a directory above it, or it is a link.
    """
    for directory in reversed(path.parents):
        try:
            facts = directory.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not stat.S_ISDIR(facts.st_mode):
            raise _UnsafeError(f"{path} is not used: {directory} is not a directory, or is a link")
        if facts.st_uid != 0 or facts.st_mode & 0o022:
            if not os.path.lexists(path):
                return False
            _check_owner(path, directory, facts)
    return os.path.lexists(path)


def _check_owner(path: Path, part: Path, facts: os.stat_result) -> None:
    if facts.st_uid == 0 and not facts.st_mode & 0o022:
        return
    whose = "others can write to it" if facts.st_uid == 0 else f"user {facts.st_uid} owns it"
    raise _UnsafeError(f"{path} is not used: gputop runs as root and {whose} ({part}); docs/screen.md")


class _Reading:
    """Reads the settings one by one; collects a sentence for each invalid one."""

    def __init__(self, path: Path, known: Mapping[str, tuple[str, ...]], panes: tuple[str, ...]) -> None:
        self._path, self._known, self._panes = path, known, panes
        self._problems: list[str] = []

    def preferences(self, values: Mapping[str, Any]) -> Preferences:
        budget = self._number("budget", values.get("budget"), BUDGETS_PERCENT)
        made = Preferences(
            rate_hz=self._number("rate", values.get("rate"), RATES_HZ),
            theme=self._one_of("theme", values.get("theme"), THEMES),
            glyphs=self._one_of("glyphs", values.get("glyphs"), GLYPHS),
            hide=self._some_of("hide", values.get("hide"), self._panes),
            tree=self._flag("tree", values.get("tree")),
            group=self._one_of("group", values.get("group"), GROUPS),
            columns=self._columns(values.get("columns")),
            alerts=self._rules(values.get("alerts")),
            budget_percent=BUDGET_PERCENT if budget is None else budget,
            path=str(self._path),
        )
        for key in values:
            if key not in SETTINGS:
                self._add_problem(f"unknown setting {_shown(key)}")
        if set(self._panes) - {"storms"} <= set(made.hide):
            self._add_problem("hide: at least one pane must stay visible")
            made = replace(made, hide=())
        return replace(made, problems=tuple(self._problems))

    def _add_problem(self, text: str) -> None:
        self._problems.append(f"{self._path}: {text} (docs/screen.md)")

    def _number(self, key: str, value: Any, bounds: tuple[float, float]) -> float | None:
        low, high = bounds
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return float(value)
        self._add_problem(f"{key} = {_shown(value)}: it must be a number from {low:g} to {high:g}")
        return None

    def _flag(self, key: str, value: Any) -> bool:
        if value is not None and not isinstance(value, bool):
            self._add_problem(f"{key} = {_shown(value)}: it must be true or false")
        return value is True

    def _one_of(self, key: str, value: Any, choices: tuple[str, ...]) -> str:
        if value is None or (isinstance(value, str) and value in choices):
            return value or ""
        self._add_problem(f"{key} = {_shown(value)}: it must be one of {', '.join(choices)}")
        return ""

    def _some_of(self, key: str, value: Any, choices: tuple[str, ...]) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            self._add_problem(f'{key} = {_shown(value)}: it must be a list, like ["{choices[0]}"]')
            return ()
        wrong = [item for item in value if item not in choices]
        if wrong:
            self._add_problem(f"{key}: {_shown(wrong[0])} is not one of {', '.join(choices)}")
        return tuple(dict.fromkeys(item for item in value if item in choices))

    def _rules(self, value: Any) -> tuple[Rule, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            self._add_problem(f'alerts = {_shown(value)}: it must be a list, like ["idle > 50 for 5m"]')
            return ()
        made = []
        for text in value:
            try:
                made.append(parse(text if isinstance(text, str) else _shown(text)))
            except RuleError as error:
                self._add_problem(f"alerts: {clip(str(error), 2 * _MOST_SHOWN)}")
        return tuple(made[:MOST_RULES])

    def _columns(self, value: Any) -> dict[str, tuple[str, ...]]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._add_problem(f"columns = {_shown(value)}: it must be a table [columns]")
            return {}
        for key in value:
            if key not in self._known:
                self._add_problem(f"columns: {_shown(key)} is not one of {', '.join(self._known)}")
        made = {}
        for table, keys in self._known.items():
            chosen = self._some_of(f"columns.{table}", value.get(table), keys)
            if chosen:
                made[table] = chosen
        return made


def _shown(value: Any) -> str:
    """Return a value as text of limited length."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        return "a number that is too long"
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"
