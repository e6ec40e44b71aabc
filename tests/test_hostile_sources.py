"""Sources that are shown and memory that is searched are read by the child: in a root and in time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.engine.calls.source_text import SourceFile, read_source
from gputop.engine.calls.stack_table import Line
from probes.code import parsing
from probes.code.interpreter import Interpreter
from probes.code.layout import LAYOUTS
from probes.code.thread_states import NoSlotError, NotYetError
from probes.files.mmap_events import Mapped
from tests.hanging_files import WHEN_READ
from tests.hostile_files import PATIENCE_S, device, in_time, pipe

pytestmark = pytest.mark.usefixtures("child")
ME = os.getpid()


def test_memory_that_hangs_when_it_is_read_keeps_nobody_waiting(hanging: Path) -> None:
    """A process may have mapped its interpreter's structures from a file system that does not answer."""
    code = (
        "import mmap, os, sys, ctypes; file = os.open(sys.argv[1], os.O_RDONLY);"
        "page = mmap.mmap(file, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE);"
        "print(ctypes.addressof(ctypes.c_char.from_buffer(page)), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(hanging / WHEN_READ)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        base = int(process.stdout.readline())
        subject = Interpreter("python3", (3, 11), layout=LAYOUTS[11])

        def looks() -> str:
            try:
                parsing.threads_of(
                    process.pid, subject, Mapped(process.pid, (base, base + 4096), (0, 0), "/python3")
                )
            except (OSError, NoSlotError, NotYetError) as error:
                return type(error).__name__
            return "found"

        assert in_time(looks) in ("OSError", "TimeoutError")
    finally:
        # who waits for its end here may wait for ever: as long as somebody reads this memory it cannot end,
        # and the file system is there until this test is over
        process.kill()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (pipe, "no plain file"),
        (device, "no plain file"),
        (lambda path: _link(path, path), "symbolic links"),
        (lambda path: _sparse(path, 1 << 43), "more than 4 MiB"),
        (lambda path: path.parent, "no plain file"),
    ],
    ids=["pipe", "device", "links to itself", "endless", "folder"],
)
def test_a_source_that_is_no_text_is_reported_in_a_sentence(
    make: Callable[[Path], Path], said: str, tmp_path: Path
) -> None:
    source = in_time(lambda: read_source(Line(str(make(tmp_path / "train.py")), 1, "step"), ME))
    assert isinstance(source, SourceFile)
    assert source.lines == ()
    assert said in source.problem


@pytest.mark.parametrize(("mode", "shown"), [(0o755, True), (0o775, True), (0o777, False), (0o1777, False)])
def test_a_source_without_a_folder_is_not_sought_where_others_can_lay_one(
    mode: int, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("somebody's\n")
    tmp_path.chmod(mode)
    monkeypatch.chdir(tmp_path)
    source = read_source(Line("train.py", 1, "step"), None)
    assert bool(source.lines) is shown
    assert ("no folder for it" in source.problem) is not shown


def _link(path: Path, to: Path) -> Path:
    path.symlink_to(to)
    return path


def _sparse(path: Path, length: int) -> Path:
    with path.open("wb") as file:
        file.truncate(length)
    return path


def test_a_source_is_sought_in_the_root_of_its_program_and_links_do_not_lead_out(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may change its root")
    root = tmp_path / "root"
    (root / "app").mkdir(parents=True)
    (root / "app" / "train.py").write_text("inside\n")
    (root / "app" / "here.py").symlink_to("/app/train.py")
    (tmp_path / "secret.py").write_text("of the host\n")
    (root / "app" / "out.py").symlink_to(f"../../../../../../../..{tmp_path}/secret.py")
    child = os.fork()
    if child == 0:
        os.chroot(root)
        time.sleep(60)
        os._exit(0)
    try:
        until = time.monotonic() + PATIENCE_S
        while os.readlink(f"/proc/{child}/root") == "/":
            assert time.monotonic() < until
            time.sleep(0.01)
        found = {
            name: read_source(Line(f"/app/{name}.py", 1, "f"), child) for name in ("train", "here", "out")
        }
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert found["train"].lines == found["here"].lines == ("inside", "")
    assert found["out"].lines == ()
