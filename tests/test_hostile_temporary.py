"""Nothing that others lay into shared folders, or into the folder where root stands, is opened or run.

Whoever can write in ``/tmp`` can lay a link under a name that a library will open, and a module under a name
that an interpreter will import. Each command runs under strace, so what libraries of C open is seen, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.commands.overview import TABLE
from tests.conftest import needed, skip_or_fail
from tests.touched_paths import touched
from tests.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "recordings" / "healthy.msgpack"
OTHER = RECORDING.with_name("numpy-sync.msgpack")
# as it is installed, which root may run where nobody else can change it: it is not started anew isolated
PROGRAM = Path(sys.executable).with_name("gputop")
# what an interpreter of multiprocessing or Dask imports before it has been given a search path
FIRST = ("multiprocessing", "selectors", "tempfile", "random", "signal", "msgpack", "numpy", "gputop", "dask")
ASKED = b"""{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26",\
"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_sessions","arguments":{}}}
"""
# without what an earlier start has left in the cache
COMPILES = """
import pathlib, sys
sys.path.append(sys.argv[1])
from probes.ebpf.build.compiled import compiled
assert not compiled("int empty(void *context) { return 0; }", pathlib.Path(sys.argv[2], "bpf")).cached
"""

CALLS = "import ctypes; ctypes.CDLL('libcudart.so.12').cudaDeviceSynchronize()"


@pytest.fixture
def program() -> str:
    """The installed program."""
    if not PROGRAM.exists():
        skip_or_fail("gputop is not installed beside this Python: make test installs it")
    return str(PROGRAM)


@pytest.fixture
def everybodys(tmp_path: Path) -> Path:
    """A folder that everybody can write, to stand in."""
    folder = tmp_path / "everybodys"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory, program: str) -> Path:
    """A lake with one recording."""
    needed("duckdb")
    folder = tmp_path_factory.mktemp("lakes") / "lake"
    words = [program, "fleet", "ingest", str(RECORDING), "--workers", "1", "--into", str(folder)]
    subprocess.run(words, check=True, capture_output=True)
    return folder


def ingested(own: Path, *words: str) -> list[str]:
    """Words that make a lake."""
    return ["fleet", "ingest", str(RECORDING), "--into", str(own / "lake"), *words]


# what is typed, from the folder where output goes
READING: dict[str, Callable[[Path], list[str]]] = {
    "stats": lambda own: ["stats", str(RECORDING)],
    "replay": lambda own: ["replay", str(RECORDING), "--once"],
    "sql": lambda own: ["sql", "SELECT count(*) FROM calls", str(RECORDING)],
    "parquet": lambda own: ["export", str(RECORDING), "--to", "parquet", "-o", str(own / "tables")],
    "perfetto": lambda own: ["export", str(RECORDING), "--to", "perfetto", "-o", str(own / "trace")],
    "report": lambda own: ["report", str(RECORDING), "-o", str(own / "page.html")],
    "mcp": lambda own: ["mcp", str(RECORDING)],
    "explain": lambda own: ["explain", str(RECORDING)],
    "diff": lambda own: ["diff", str(RECORDING), str(RECORDING)],
    "csv": lambda own: ["export", str(RECORDING), "--to", "csv", "-o", str(own / "tables")],
    "speedscope": lambda own: ["export", str(RECORDING), "--to", "speedscope", "-o", str(own / "flame")],
    "import": lambda own: ["import", trace(own), "-o", str(own / "imported")],
    "inspect": lambda own: ["inspect", str(RECORDING)],
    "verify": lambda own: ["verify", str(RECORDING)],
    "repair": lambda own: ["repair", str(RECORDING), "-o", str(own / "whole")],
    "cut": lambda own: ["cut", str(RECORDING), "-o", str(own / "part"), "--from", "1"],
    "merge": lambda own: ["merge", str(RECORDING), str(OTHER), "-o", str(own / "both")],
    "redact": lambda own: ["redact", str(RECORDING), "-o", str(own / "shown")],
    "frames": lambda own: ["stream", "--jsonl", str(RECORDING)],
    "simgpu": lambda own: ["simgpu"],
    "completion": lambda own: ["--print-completion", "bash"],
    "workers": lambda own: ingested(own, "--workers", "2"),
    "dask": lambda own: ingested(own, "--dask", "--workers", "1"),
    "check": lambda own: ["check"],
}
OF_LAKES: dict[str, Callable[[Path], list[str]]] = {
    "fleet-sql": lambda lake: ["fleet", "sql", str(lake), "SELECT count(*) FROM sessions"],
    "fleet-overview": lambda lake: ["fleet", "overview", str(lake)],
    "fleet-report": lambda lake: ["fleet", "report", str(lake), "-o", str(lake.with_name("page.html"))],
}


def trace(own: Path) -> str:
    """A small one of torch.profiler."""
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 1,
        "tid": 1,
        "ts": 1,
        "dur": 2,
    }
    (file := own / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [call]}))
    return str(file)


def test_every_command_is_watched() -> None:
    watched = {words(Path("/own"))[0] for name, words in READING.items() if name != "import"}
    watched |= {words[0] for _way, words in BY_HAND.values() if words} | {*OBSERVING, "import"}
    assert {*TABLE} <= watched | {"fleet"}


def assert_untouched(program: str, words: list[str], folder: Path, *named: Path) -> None:
    """A command does its work, and touches nothing that others could have laid there."""
    strange, ended = touched(
        [program, *words], folder, ROOT, sys.prefix, *named, given=ASKED, observes=words[0] == "check"
    )
    assert words[0] == "check" or ended.returncode == 0, ended.stderr.decode()
    assert strange == []


@pytest.mark.dear
@pytest.mark.mainly("workers", "dask", "mcp")
@pytest.mark.parametrize("command", READING)
def test_a_command_touches_no_name_that_others_could_have_laid(
    command: str, program: str, everybodys: Path, tmp_path: Path
) -> None:
    if command == "dask":
        needed("distributed")
    own = tmp_path / "own"
    own.mkdir()
    assert_untouched(program, READING[command](own), everybodys, own)


@pytest.mark.mainly("fleet-sql")
@pytest.mark.parametrize("command", OF_LAKES)
def test_a_question_to_a_lake_touches_no_name_that_others_could_have_laid(
    command: str, program: str, everybodys: Path, lake: Path
) -> None:
    assert_untouched(program, OF_LAKES[command](lake), everybodys, lake.parent)


# with a person, a browser, an assistant
BY_HAND = {
    "screen": ("terminal", ("replay", str(RECORDING))),
    "screen-without-recording": ("terminal", ()),
    "web": ("browser", ("web", str(RECORDING), "--port", "0", "--allow-root")),
    "assistant": ("assistant", ("mcp", str(RECORDING))),
}


@pytest.mark.mainly("web", "assistant")
@pytest.mark.parametrize("command", BY_HAND)
def test_a_screen_or_a_server_touches_no_name_that_others_could_have_laid(
    command: str, program: str, everybodys: Path, tmp_path: Path
) -> None:
    way, words = BY_HAND[command]
    if way == "browser":
        needed("textual_serve")
    if way == "assistant":
        needed("mcp")
    strange, ended = touched(
        by_hand(way, program, *words), everybodys, ROOT, sys.prefix, env=home(tmp_path), observes=not words
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert strange == []


def by_hand(way: str, *words: str) -> list[str]:
    """The words of one who uses a command."""
    return [sys.executable, "-I", str(ROOT / "tests" / "used_by_hand.py"), way, *words]


def home(folder: Path) -> dict[str, str]:
    """Settings and what a screen keeps lie in a home of its own."""
    (made := folder / "home").mkdir(exist_ok=True)
    return {"HOME": str(made), "XDG_CONFIG_HOME": f"{made}/.config", "XDG_STATE_HOME": f"{made}/.state"}


# what the next test uses
OBSERVING = ("record", "explain", "stream", "annotate", "demo", "serve", "dump", "attach")


DAEMON = (
    "{program} serve {at} --keep-dir {own}/kept & "
    "while ! {program} dump {at} -o {own}/snapped 2>/dev/null; do sleep 0.2; done; "
    "{attach} {at}; shown=$?; {program} serve --stop {at}; wait; exit $shown"
)
LIVE: dict[str, Callable[[str, Path], list[str]]] = {
    "compiler": lambda _program, own: [sys.executable, "-I", "-c", COMPILES, str(ROOT), str(own)],
    "record": lambda program, own: [
        *(program, "record", "-o", str(own / "one.gputop"), "--duration", "1", "--", "sleep", "1")
    ],
    "segments": lambda program, own: [
        *(program, "record", "-o", str(own / "segments"), "--max-time", "1", "--duration", "2")
    ],
    "explain": lambda program, _own: [
        program,
        "explain",
        "--simgpu",
        "--",
        sys.executable,
        "-I",
        "-c",
        CALLS,
    ],
    "machine": lambda program, _own: [program, "--once", "--duration", "1"],
    "process": lambda program, _own: [program, "--pid", str(os.getpid()), "--once", "--duration", "1"],
    "started": lambda program, _own: [program, "--once", "--duration", "1", "--", "sleep", "1"],
    "stream": lambda program, _own: [program, "stream", "--jsonl", "--duration", "1"],
    "annotate": lambda program, own: [
        *(program, "record", "-o", str(own / "named"), "--", program, "annotate", "mark", "epoch")
    ],
    "demo": lambda program, _own: [program, "demo", "dataloader-workers", "--once", "--duration", "1"],
    "daemon": lambda program, own: [
        "sh",
        "-c",
        DAEMON.format(
            program=program,
            own=own,
            at=f"--socket {own}/run/gputop.sock",
            attach=" ".join(by_hand("terminal", program, "attach")),
        ),
    ],
}


@pytest.mark.dear
@pytest.mark.ebpf
@pytest.mark.parametrize("command", LIVE)
def test_observing_touches_no_name_that_others_could_have_laid(
    command: str, program: str, everybodys: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    (own / "run").mkdir(parents=True)
    named = {"SIMGPU_STATE": str(own / "state")}
    strange, ended = touched(
        LIVE[command](program, own), everybodys, ROOT, sys.prefix, own, env=named, observes=True
    )
    assert ended.returncode == 0, ended.stderr.decode()
    # an abstract name of 64 random bits: others cannot have laid it
    assert [name for name in strange if 'sun_path=@"gputop-annotate-' not in name] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: root's links into a folder of others")
def test_dask_of_this_machine_takes_nothing_that_others_have_laid(
    program: str, everybodys: Path, tmp_path: Path
) -> None:
    """As it was attacked: links where it writes, modules where root stands, settings in the home."""
    needed("distributed")
    own, proof, precious = tmp_path / "own", tmp_path / "proof", tmp_path / "precious"
    settings, scratch = tmp_path / "home" / ".config" / "dask", tmp_path / "temporary" / "dask-scratch-space"
    for folder in (own, settings, scratch):
        folder.mkdir(parents=True)
    precious.write_text("root's")
    for name in ("global.lock", "purge.lock"):
        (scratch / name).symlink_to(precious)
    lay(everybodys, proof)
    code = tmp_path / "loaded_first.py"
    code.write_text(f"open({str(proof)!r}, 'a').write('settings')\n")
    # with sudo the home may be the user's, and Dask reads what to load first from there
    parts = "".join(f"  {part}:\n    preload: [{code}]\n" for part in ("scheduler", "nanny", "worker"))
    (settings / "distributed.yaml").write_text(f"distributed:\n{parts}")
    done = subprocess.run(
        [program, *ingested(own, "--dask", "--workers", "1")],
        cwd=everybodys,
        env={**os.environ, "TMPDIR": str(scratch.parent), "HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert not proof.exists(), f"{proof.read_text()} of others ran"
    assert (done.returncode, precious.read_text()) == (0, "root's"), done.stderr


def lay(everybodys: Path, proof: Path) -> None:
    """Modules that leave a proof where they are imported."""
    for name in FIRST:
        (everybodys / f"{name}.py").write_text(f"open({str(proof)!r}, 'a').write({name!r})\n")


def test_workers_import_nothing_from_the_folder_where_root_stands(
    program: str, everybodys: Path, tmp_path: Path
) -> None:
    own, proof = tmp_path / "own", tmp_path / "proof"
    own.mkdir()
    lay(everybodys, proof)
    words = [program, *ingested(own, "--workers", "2")]
    done = subprocess.run(words, cwd=everybodys, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert not proof.exists(), f"{proof.read_text()} of others ran"
    assert done.returncode == 0, done.stderr
