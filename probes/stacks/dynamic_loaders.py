"""Probes dynamic loaders where they notify debuggers: from then on addresses may mean other code."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable

from probes.code import elf, libraries, parsing
from probes.ebpf.quota import Quota, Unmapped
from probes.files import untrusted_files
from probes.files.mmap_events import Mapped
from probes.process import users

_NAME = re.compile(r"ld-linux[-\w]*\.so\.\d|ld-musl-\w+\.so\.1|ld(64)?\.so\.\d|ld-\d\.\d+\.so|ld\.so")
MOST_OF_ONE_USER, MOST_OF_ROOT = 16, 128  # each image of a container has its own, and links on it are bounded
_MOST_SEEN = 1 << 12
_HOOK = "_dl_debug_state"  # debuggers set a breakpoint here, in glibc and musl

Identity = tuple[int, int]


class Loaders:
    """Each loader's file is probed once.

    Args:
        attach: Attaches the probe at a place of a file: its link, None if it stays; may raise OSError.
        report: Called with a sentence about a user who has too many.
    """

    def __init__(
        self, attach: Callable[[untrusted_files.File, int], int | None], report: Callable[[str], None]
    ) -> None:
        self._attach = attach
        self._seen: dict[Identity, str] = {}
        self._links: dict[Identity, int] = {}  # of those that can be let go of
        self._unmapped = Unmapped()
        self._quota = Quota("loaders", MOST_OF_ONE_USER, MOST_OF_ROOT, report)

    def notice(self, mappings: Iterable[Mapped]) -> None:
        """Probes those of these files that are loaders."""
        for mapping in mappings:
            if mapping.file in self._seen or not _NAME.fullmatch(libraries.file_name(mapping.path)):
                continue
            if not self._quota.admits(user := users.of(mapping.pid)):
                continue
            found = libraries.file_of(mapping)
            if found is None:
                continue  # it may be reached by another process's path
            self._quota.acquire(user, mapping.file)
            with contextlib.suppress(OSError, elf.ElfError):
                with untrusted_files.opened(*found) as file:
                    offset = parsing.functions_in(file, [_HOOK], mapping.path).get(_HOOK)
                    link = None if offset is None else self._attach(file, offset)
                if len(self._seen) >= _MOST_SEEN:
                    self._seen = {file: path for file, path in self._seen.items() if file in self._links}
                self._seen[mapping.file] = mapping.path
                if link is not None:
                    self._links[mapping.file] = link

    @property
    def probed(self) -> dict[Identity, str]:
        """Loaders whose probes can be removed, and their paths."""
        return {file: self._seen[file] for file in self._links}

    def release(self, mapped: Collection[Identity], now: float) -> list[int]:
        """Forgets those that no process maps; the links to close."""
        gone = self._unmapped.of(self._links, mapped, now)
        for file in gone:
            del self._seen[file]
            self._quota.release(file)
        return [self._links.pop(file) for file in gone]
