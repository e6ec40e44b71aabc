"""Which names a program touches in folders where others can write, by strace: libraries of C included."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from tests.conftest import skip_or_fail

_TOPS = ("/tmp", "/var/tmp", "/dev/shm")
# what opens, makes, removes, renames or connects; what only asks for facts leads nowhere
_CALLS = (
    "open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,renameat,"
    "renameat2,unlink,unlinkat,rmdir,truncate,chmod,fchmodat,chown,lchown,fchownat,chdir,execve,connect,bind"
)
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)")
_LINE = re.compile(r"(\d+) +(.*)")
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?(?:sun_path=)?"((?:[^"\\]|\\.)*)"')
_BEGUN, _RESUMED = " <unfinished ...>", re.compile(r"<\.\.\. \w+ resumed>(.*)")
_OPENS, _FOLDERS, _LINKS = ("open", "openat", "openat2"), ("mkdir", "mkdirat"), ("link", "linkat")


@dataclass
class Watch:
    """What a program touches that is neither its own nor named.

    Attributes:
        folder: Where it runs, a folder in which others can write.
        named: What the command names: there it does as it is told.
        observes: It observes the programs that run beside, whose files are in such folders, too.
        strange: System calls on names that somebody else could have laid there.
    """

    folder: str
    named: tuple[str, ...]
    observes: bool = False
    strange: list[str] = field(default_factory=list)
    _own: set[str] = field(default_factory=set)
    _begun: dict[str, str] = field(default_factory=dict)

    def read(self, trace: Path) -> None:
        """All that strace wrote."""
        for line in trace.read_text(errors="replace").splitlines():
            if (found := _LINE.fullmatch(line)) is None:
                continue
            pid, text = found.groups()
            if text.endswith(_BEGUN):
                self._begun[pid] = text.removesuffix(_BEGUN)
                continue
            if rest := _RESUMED.match(text):
                text = self._begun.pop(pid, "") + rest[1]
            if call := _CALL.match(text):
                self._take(call[1], call[2], int(call[3]))

    def _take(self, name: str, words: str, result: int) -> None:
        found = [] if "sa_family" in words and "sun_path" not in words else _PATH.findall(words)
        paths = [os.path.normpath(os.path.join(at or self.folder, path)) for at, path in found if path]
        if name == "execve":
            paths = paths[:1]
        if paths and _makes(name, words) and (name not in _LINKS or self._is_own(paths[0])):
            if result >= 0:
                self._own.add(paths.pop())
            else:
                paths.pop()
        if name in _OPENS and "O_RDONLY|O_CLOEXEC|O_PATH" in words and self._is_observed(paths):
            return
        listed = (
            name in _OPENS and self.folder in paths and "O_PATH" not in words and "O_TMPFILE" not in words
        )
        if listed or any(self._is_strange(path) for path in paths):
            self.strange.append(f"{name}({words}) = {result}")

    def _is_strange(self, path: str) -> bool:
        if self._is_own(path) or not any(path.startswith(f"{top}/") for top in (*_TOPS, self.folder)):
            return False
        if path.startswith(f"{self.folder}/"):
            return True
        return path != self.folder and not any(_on_one_way(path, name) for name in self.named)

    def _is_observed(self, paths: Sequence[str]) -> bool:
        """Whether these are places alone of programs and libraries that run beside, of whatever name.

        By them gputop tells whether a file is the one that a process runs or maps; nothing can be read.
        """
        return self.observes and not any(f"{path}/".startswith(f"{self.folder}/") for path in paths)

    def _is_own(self, path: str) -> bool:
        return not self._own.isdisjoint(map(str, (path, *PurePath(path).parents)))


def _makes(name: str, words: str) -> bool:
    """Whether a call makes what was not there, for who calls alone; or fails."""
    if name in _OPENS:
        return "O_CREAT" in words and "O_EXCL" in words
    if name in _FOLDERS:
        return not int(words.rpartition(" ")[2], 8) & 0o022
    return name in _LINKS


def _on_one_way(path: str, name: str) -> bool:
    """Whether a path leads to a name, or on from it."""
    return f"{path}/".startswith(f"{name}/") or f"{name}/".startswith(f"{path}/")


def touched(
    words: Sequence[str],
    folder: Path,
    *named: Path | str,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
    seconds: float = 400,
    observes: bool = False,
) -> tuple[list[str], subprocess.CompletedProcess[bytes]]:
    """Runs a program under strace in a folder; (what it touches of others, how it ended)."""
    if shutil.which("strace") is None:
        skip_or_fail("strace not found: apt-get install strace")
    trace = folder.with_name(f"{folder.name}.strace")
    watching = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-y",
        "-s",
        "4096",
        "-e",
        "signal=none",
        "-e",
        f"trace={_CALLS}",
    ]
    kept = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    ended = subprocess.run(
        [*watching, "-e", f"trace={_CALLS}", "-o", str(trace), *words],
        cwd=folder,
        env=kept | dict(env or {}),
        input=given,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    watch = Watch(str(folder), tuple(map(str, named)), observes)
    watch.read(trace)
    return watch.strange, ended
