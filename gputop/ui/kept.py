"""Writes choices made on the screen into the preferences file; the rest of the file is unchanged."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gputop.process.terminal import in_browser
from gputop.ui.model.config import MOST_BYTES

_SECTION = re.compile(r"^[ \t]*\[([^\[\]\n]*)\][ \t]*(?:#.*)?$", re.MULTILINE)
_GROUP = re.compile(
    r"""^[ \t]*(?:group|"group")[ \t]*=[ \t]*["'][^"'\n]*["'][ \t]*(?:#[^\n]*)?(?:\n|\Z)""", re.M
)


class NotKeptError(Exception):
    """The file could not be written; the text has the reason, and the line to write by hand."""


def keep_columns(path: Path, table: str, keys: Sequence[str]) -> None:
    """Write the columns of a table; no keys: the usual ones again.

    Raises:
        NotKeptError: The file cannot be written, or not safely.
    """
    line = f"{table} = [{', '.join(_quoted(key) for key in keys)}]"
    by_hand = f"to save them, write  {line}  below [columns] in {path}"
    _keep(path, by_hand, lambda text: _changed(text, table, keys, line))


def keep_group(path: Path, group: str) -> None:
    """Write what processes are grouped by; "" for nothing.

    Raises:
        NotKeptError: The file cannot be written, or not safely.
    """
    line = f"group = {_quoted(group)}"
    _keep(path, f"to save it, write  {line}  in {path}", lambda text: _grouped(text, group, line))


def _keep(path: Path, by_hand: str, changed: Callable[[str], str]) -> None:
    if in_browser():  # the file belongs to the page's server
        raise NotKeptError("the browser cannot save preferences: open the screen in a terminal")
    try:
        if os.geteuid() == 0:
            _check_roots(path)
        target = Path(os.path.realpath(path))  # a link, as to a dotfiles repository, stays a link
        old = _text(target)
        _write(target, changed(old))
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise NotKeptError(f"not saved: {reason}; {by_hand}") from error


def _quoted(key: str) -> str:
    return f'"{key}"'


def _check_roots(path: Path) -> None:
    """Raise ValueError if other users can change the file or a directory above it."""
    for part in (*reversed(path.parents), path):
        try:
            facts = part.lstat()
        except FileNotFoundError:
            return
        if facts.st_uid != 0 or stat.S_ISLNK(facts.st_mode) or facts.st_mode & 0o022:
            raise ValueError(f"gputop runs as root, and {part} is a link or not root's alone")


def _text(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return ""
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} is longer than {MOST_BYTES >> 10} KiB")
    return content.decode()


def _changed(text: str, table: str, keys: Sequence[str], line: str) -> str:
    """Return the text with a table's columns changed; the result is parsed to check it.

    Raises:
        ValueError: The file is not TOML, or has these settings in another form.
    """
    before = tomllib.loads(text)
    wanted: dict[str, Any] = {**before, "columns": {**before.get("columns", {}), table: list(keys)}}
    if not keys:
        del wanted["columns"][table]
    new = _edited(text, table, line if keys else "")
    found = tomllib.loads(new)
    if {**found, "columns": found.get("columns", {})} != wanted:
        raise ValueError("its [columns] are in a form that gputop cannot change")
    return new


def _grouped(text: str, group: str, line: str) -> str:
    """Return the text with the group changed; the result is parsed to check it.

    Raises:
        ValueError: The file is not TOML, or has this setting in another form.
    """
    wanted = {**tomllib.loads(text), "group": group}
    if not group:
        del wanted["group"]
    first = _SECTION.search(text)
    end = first.start() if first else len(text)
    head, rest = _GROUP.sub("", text[:end]), text[end:]
    if group:
        head += ("" if not head or head.endswith("\n") else "\n") + f"{line}\n"
    if tomllib.loads(head + rest) != wanted:
        raise ValueError("its group is in a form that gputop cannot change")
    return head + rest


def _edited(text: str, table: str, line: str) -> str:
    headings = list(_SECTION.finditer(text))
    place = next((i for i, found in enumerate(headings) if found[1].strip() == "columns"), None)
    if place is None:
        if not line:
            return text
        return text + ("" if not text or text.endswith("\n") else "\n") + f"\n[columns]\n{line}\n"
    start = headings[place].end()
    end = headings[place + 1].start() if place + 1 < len(headings) else len(text)
    section = text[start:end]
    entry = re.compile(rf'^[ \t]*(?:{table}|"{table}")[ \t]*=[ \t]*\[[^\]]*\][^\n]*(?:\n|\Z)', re.MULTILINE)
    replacement = f"{line}\n" if line else ""
    if entry.search(section):
        section = entry.sub(lambda _: replacement, section, count=1)
    else:
        section = f"\n{replacement}" + section.removeprefix("\n")
    return text[:start] + section + text[end:]


def _write(path: Path, text: str) -> None:
    """Replace the file atomically; its mode is unchanged."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
