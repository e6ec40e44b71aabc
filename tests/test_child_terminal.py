"""The watched command has nothing of our terminal, and what people do at it works as before."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from probes.proc.procfs import process_state
from tests.cli_support import complete
from tests.ebpf.growing import marks
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
TIMEOUT_S = 120
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")

# A shell with job control that runs one command, then says what somebody typed into its terminal.
SHELL = """
import os, select, signal, sys, termios
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
before = termios.tcgetattr(0)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    same = termios.tcgetattr(0)[:4] == before[:4]
    if not os.WIFSTOPPED(status):
        break
    print("SHELL stopped", same, flush=True)
    os.read(0, 100)  # a key: fg
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
modes = termios.tcgetattr(0)
modes[3] &= ~(termios.ICANON | termios.ECHO)
termios.tcsetattr(0, termios.TCSANOW, modes)
print("SHELL is back", flush=True)
typed = os.read(0, 100) if select.select([0], [], [], float(os.environ.get("PATIENCE", "0.4")))[0] else b""
print("SHELL ended", os.waitstatus_to_exitcode(status), same, typed.decode(), flush=True)
"""

# What gputop does with a command: its arguments are the command; OUTPUT names where its output goes.
WATCHER = """
import os, signal, sys, time
from gputop.process.child import Child, Identity
nobody = Identity(65534, 65534, "nobody", "/") if os.geteuid() == 0 else None
output = {"": None, "terminal": 2, "file": os.open("/dev/null", os.O_WRONLY)}[os.environ.get("OUTPUT", "")]
os.dup2(0, 7, inheritable=True)  # as a shell may do
child = Child(sys.argv[1:], os.environ, nobody, output)
signal.signal(signal.SIGINT, lambda *_: child.interrupt())  # the command may be ready before release returns
child.release()
if os.environ.get("LEAVES"):
    time.sleep(float(os.environ["LEAVES"]))
    sys.exit(0)
sys.exit(child.wait())
"""


class Terminal:
    """A terminal with a shell on it, as a person sees it."""

    def __init__(self, *command: str, **env: str) -> None:
        self.master, slave = pty.openpty()
        self.name = os.ttyname(slave)
        self.resize(30, 90)
        self.shown = b""
        self.shell = subprocess.Popen(
            [sys.executable, "-c", SHELL, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **env},
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )
        os.close(slave)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def see(self, pattern: str) -> re.Match[str]:
        """Waits until something is shown; what was shown up to there is not looked at again."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            text = self.shown.decode(errors="replace")
            found = re.search(pattern, text)
            if found is not None:
                self.shown = text[found.end() :].encode()
                return found
            assert time.monotonic() < deadline, f"{pattern!r} is not shown: {text!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                with suppress(OSError):
                    self.shown += os.read(self.master, 65_536)

    def close(self) -> None:
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


@contextmanager
def watching(*command: str, **env: str) -> Iterator[Terminal]:
    """A terminal on which a command is watched, without probes."""
    terminal = Terminal(sys.executable, "-c", WATCHER, *command, **env)
    try:
        yield terminal
    finally:
        terminal.close()
        terminal.shell.kill()
        terminal.shell.wait()


def program(text: str) -> tuple[str, ...]:
    # the system's Python, which nobody can run as well
    return ("/usr/bin/python3", "-u", "-c", "import fcntl, os, signal, sys, termios, time\n" + text)


TYPES = program("""
for path in (0, 1, 2, sys.argv[1]):
    try:
        terminal = path if isinstance(path, int) else os.open(path, os.O_RDWR)
        for key in b"evil\\n":
            fcntl.ioctl(terminal, termios.TIOCSTI, bytes([key]))
    except OSError:
        pass
open(sys.argv[2], "w").write("tried")
""")


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder in which anybody can write."""
    tmp_path.chmod(0o777)
    for each in tmp_path.parents[:-2]:
        each.chmod(each.stat().st_mode | 0o011)
    return tmp_path


@needs_root
@pytest.mark.parametrize("output", ["", "terminal", "file"])
def test_it_can_not_type_into_our_terminal(open_folder: Path, output: str) -> None:
    with watching(*TYPES, "/dev/tty", str(open_folder / "tried"), OUTPUT=output) as terminal:
        assert terminal.see(r"SHELL ended (\d+) (\w+) (.*)\r").groups() == ("0", "True", "")
    assert (open_folder / "tried").exists()


@needs_root
@pytest.mark.parametrize("output", ["", "terminal", "file"])
def test_it_holds_no_descriptor_of_our_terminal_and_is_not_controlled_by_it(
    open_folder: Path, output: str
) -> None:
    """Who has one can read what is typed there long after, and a process may hide where it likes."""
    said = open_folder / "said"
    look = program(
        f"""
files = []
for each in range(100):
    try:
        files.append(os.readlink(f"/proc/self/fd/{{each}}"))
    except OSError:
        pass
controlled = open("/proc/self/stat").read().rsplit(")", 1)[1].split()[4]
open({str(said)!r}, "w").write(" ".join([*files, controlled, str(os.getsid(0) == os.getpid())]))
"""
    )
    with watching(*look, OUTPUT=output) as terminal:
        device = os.stat(terminal.name).st_rdev
        assert terminal.see(r"SHELL ended (\d+)")[1] == "0"
    *files, controlled, leads = said.read_text().split()
    assert terminal.name not in files
    assert int(controlled) != device
    assert leads == "True"
    own = [file for file in files if file.startswith("/dev/pts/")]
    assert len(own) == {"": 3, "terminal": 2, "file": 0}[output], "where it had a terminal it has one"


def test_it_reads_what_is_typed_and_keys_are_shown_once() -> None:
    reads = program('print(os.isatty(0), os.isatty(2)); print("<" + input().upper() + ">")')
    with watching(*reads) as terminal:
        terminal.see("True True\r\n")
        terminal.press("hello\r")
        assert terminal.see(r"hello\r\n<HELLO>\r\n").start() == 0
        assert terminal.see(r"SHELL ended (\d+) (\w+)").groups() == ("0", "True")


def test_a_long_text_that_is_pasted_arrives_whole() -> None:
    reads = program('print("ready"); print(sum(len(input()) for _ in range(200)))')
    with watching(*reads) as terminal:
        terminal.see("ready\r\n")
        for _ in range(200):
            terminal.press("x" * 99 + "\r")
        terminal.see("19800")


def test_a_program_that_reads_keys_one_by_one_gets_them_at_once() -> None:
    """Also those that mean something else elsewhere: it is what a line editor asks for."""
    reads = program("""
import tty
tty.setraw(0)
print("ready")
print([os.read(0, 1) for _ in range(3)])
""")
    with watching(*reads) as terminal:
        terminal.see("ready\n")
        terminal.press("a\x03\x1a")
        terminal.see(re.escape(r"[b'a', b'\x03', b'\x1a']"))
        assert terminal.see(r"SHELL ended (\d+) (\w+)").groups() == ("0", "True")


def test_the_size_is_ours_and_follows_it() -> None:
    tells = program("""
signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size()))
print(os.get_terminal_size())
while True: time.sleep(0.1)
""")
    with watching(*tells) as terminal:
        terminal.see("columns=90, lines=30")
        terminal.resize(40, 100)
        terminal.see("columns=100, lines=40")


COUNTS = program("""
end = time.monotonic() + 60
def count(*_):
    global end
    end = min(end, time.monotonic() + 0.3)  # it would come twice by then
    print("interrupted")
signal.signal(signal.SIGINT, count)
print("ready")
while time.monotonic() < end: time.sleep(0.1)
sys.exit(5)
""")


@pytest.mark.parametrize("output", ["", "terminal"])
def test_ctrl_c_interrupts_it_once(output: str) -> None:
    with watching(*COUNTS, OUTPUT=output) as terminal:
        terminal.see("ready\r\n")
        terminal.press("\x03")
        found = terminal.see(r"(?s)(.*)SHELL ended (\d+) (\w+)")
        assert found[1].count("interrupted") == 1
        assert found.groups()[1:] == ("5", "True")


def test_ctrl_c_in_a_shell_that_it_runs_is_for_that_shell_s_job() -> None:
    with watching("bash", "--norc", "-i", PS1="prompt ") as terminal:
        terminal.see("prompt ")
        terminal.press("sh -c 'echo begun; exec sleep 50'\r")
        terminal.see(r"[\r\n]begun\r\n")
        terminal.press("\x03")
        terminal.see("prompt ")
        terminal.press("echo still $((40 + 2)); exit 3\r")
        terminal.see("still 42")
        assert terminal.see(r"SHELL ended (\d+) (\w+)").groups() == ("3", "True")


def test_ctrl_z_stops_it_with_us_and_gives_the_terminal_back() -> None:
    runs = program('print("number", os.getpid()); input(); print("went on")')
    with watching(*runs) as terminal:
        pid = int(terminal.see(r"number (\d+)")[1])
        terminal.press("\x1a")
        assert terminal.see(r"SHELL stopped (\w+)")[1] == "True"
        wait_until(lambda: process_state(pid) == "T", "the command goes on")
        terminal.press("\r")
        wait_until(lambda: process_state(pid) == "S", "the command does not go on")
        # what is typed before the terminal is read again is the shell's
        wait_until(lambda: not termios.tcgetattr(terminal.master)[3] & termios.ICANON, "it is not read again")
        terminal.press("x\r")
        terminal.see("went on")
        assert terminal.see(r"SHELL ended (\d+) (\w+)").groups() == ("0", "True")


def test_what_goes_on_after_us_goes_on_printing(open_folder: Path) -> None:
    go = open_folder / "go"
    later = program(f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint('later'); print('last')")
    with watching(*later, OUTPUT="terminal", LEAVES="0.1") as terminal:
        assert terminal.see(r"SHELL ended (\d+) (\w+)").groups() == ("0", "True")
        go.touch()
        terminal.see("(?s)later.*last")


def test_after_us_it_reads_nothing_any_more() -> None:
    reads = program('print("ready"); print("<" + sys.stdin.readline() + ">")')
    with watching(*reads, LEAVES="0.5", PATIENCE="30") as terminal:
        terminal.see("ready\r\n")
        terminal.see("SHELL is back")
        terminal.press("ours")
        assert terminal.see(r"SHELL ended (\d+) (\w+) (.*)\r").groups() == ("0", "True", "ours")


def test_a_terminal_that_is_closed_hangs_it_up(tmp_path: Path) -> None:
    waits = program('print("number", os.getpid()); time.sleep(60)')
    with watching(*waits) as terminal:
        pid = int(terminal.see(r"number (\d+)")[1])
        terminal.close()
        wait_until(lambda: process_state(pid) in ("", "Z"), "it lives without its terminal")


def test_keys_for_a_pager_behind_us_are_not_taken_from_it(tmp_path: Path) -> None:
    (tmp_path / "watcher.py").write_text(WATCHER)
    command = f"{sys.executable} {tmp_path}/watcher.py sh -c 'read line; echo its=$line; sleep 1'"
    pager = "sh -c 'read word; echo sees=$word; read key </dev/tty; echo key=$key'"
    terminal = Terminal("bash", "-c", f"{command} | {pager}")
    try:
        terminal.see("sees=its=\r\n")
        terminal.press("q\r")
        terminal.see("key=q\r\n")
    finally:
        terminal.close()
        terminal.shell.kill()
        terminal.shell.wait()


def test_without_a_terminal_it_gets_none() -> None:
    look = program("print([os.isatty(each) for each in (0, 1, 2)], os.getsid(0) == os.getpid())")
    done = subprocess.run(
        [sys.executable, "-c", WATCHER, *look],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[False, False, False] True\n", "")


@needs_root
@pytest.mark.ebpf
def test_a_recording_on_a_terminal_ends_in_order_by_ctrl_c(tmp_path: Path) -> None:
    file = tmp_path / "x"
    record = (sys.executable, "-m", "gputop", "record", "--lines", "off", "-o", str(file), "--")
    terminal = Terminal(*record, *COUNTS, SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY))
    try:
        terminal.see("ready\r\n")
        wait_until(lambda: marks(file), "nothing is recorded")
        terminal.press("\x03")
        terminal.see("interrupted")
        assert terminal.see(r"SHELL ended (\d+) (\w+) (.*)\r").groups() == ("5", "True", "")
    finally:
        terminal.close()
        terminal.shell.kill()
        terminal.shell.wait()
    assert complete(file)


@needs_root
@pytest.mark.ebpf
def test_under_record_a_program_of_another_user_types_nothing_into_root_s_shell(open_folder: Path) -> None:
    record = (sys.executable, "-m", "gputop", "record", "--lines", "off", "-o", str(open_folder / "x"), "--")
    tried = open_folder / "tried"
    terminal = Terminal(*record, *TYPES, "/dev/tty", str(tried), SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY))
    try:
        assert terminal.see(r"SHELL ended (\d+) (\w+) (.*)\r").groups() == ("0", "True", "")
    finally:
        terminal.close()
        terminal.shell.kill()
        terminal.shell.wait()
    assert tried.exists()
