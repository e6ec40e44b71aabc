"""What tests need of the machine: they say so with a marker, and are skipped loudly where it is missing.

With ``GPUTOP_REQUIRE_ALL=1``, as in CI, what is missing fails the test instead.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from probes import api
from probes.code import reader_child
from probes.ebpf import degradation
from probes.files import file_reader

# helpers say what was compared, as tests do
_OTHERS = (path.stem for path in Path(__file__).parent.iterdir() if path.stem != "conftest")
pytest.register_assert_rewrite(*(f"tests.{name}" for name in _OTHERS))

from tests import apart, quick, rootless_support, sharing, variants  # noqa: E402
from tests.simgpu_programs.harness import Bench  # noqa: E402

# the same examples each time, however slow the machine is, and more of them with -m long (scripts/test.sh);
# others: pytest --hypothesis-profile=random
_SLOW = [HealthCheck.too_slow]
settings.register_profile(
    "same", deadline=None, derandomize=True, max_examples=40, suppress_health_check=_SLOW
)
settings.register_profile(
    "many", deadline=None, derandomize=True, max_examples=400, suppress_health_check=_SLOW
)
settings.register_profile("random", deadline=None)
settings.load_profile("same")

_TRACEFS = Path("/sys/kernel/tracing")
_BPFTRACE_S = 600  # to attach it waits for all that is being detached, of other tests and of other programs
_YOUNG = 20_000  # objects between two collections: with Python's 700 they take a fifth of the tests' CPU time
_MARKERS = {
    "ebpf": "loads gputop's probes: needs root, bcc and a C compiler",
    "bpftrace": "compares with bpftrace: needs it and tracefs",
    "timed": "measures times: it and what it starts go before all others, one such test at a time",
    "slow": "takes over 0.25 s of CPU, or waits for a second, in this process: make check leaves it out",
    "dear": "takes ten seconds or more: of those that come at its turn, it begins first",
    variants.MARKER: "its variants with these identifiers; the others are long",
    "drains": "waits until the kernel has detached the perf-event probes that tests left behind before it",
}


def skip_or_fail(reason: str) -> None:
    """Skips the test with a reason, or fails it where nothing may be left out."""
    if os.environ.get("GPUTOP_REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def needed(module: str) -> ModuleType:
    """A module of the extras ``exchange`` and ``exchange-test``; without it the test is skipped."""
    try:
        return import_module(module)
    except ImportError as error:
        skip_or_fail(f"{error}: pip install '.[exchange,exchange-test]'")
        raise


@cache
def missing_for_ebpf() -> str:
    """Why gputop's probes cannot be loaded here; empty when they can."""
    from probes.ebpf.build.compiler import NoBccError, import_bcc

    if os.geteuid() != 0:
        return "real eBPF needs root: run the tests with sudo"
    if shutil.which("cc") is None:
        return "cc not found: apt-get install gcc libc6-dev"
    try:
        import_bcc()
    except NoBccError as error:
        return str(error)
    return ""


@cache
def missing_for_bpftrace() -> str:
    """Why bpftrace cannot run here; empty when it can."""
    if shutil.which("bpftrace") is None:
        return "bpftrace not found: apt-get install bpftrace"
    if not (_TRACEFS / "events").exists():
        options = ["-t", "tracefs", "-o", "nosuid,nodev,noexec", "none", str(_TRACEFS)]
        subprocess.run(["mount", *options], capture_output=True, check=False)
    if not (_TRACEFS / "events").exists():
        return f"bpftrace needs tracefs, and it cannot be mounted on {_TRACEFS}"
    return ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--quick`` is make check."""
    parser.addoption("--quick", action="store_true", help="what needs neither root nor another process")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the markers known, and whoever runs tests independent of others on the machine."""
    if not config.getoption("quick"):  # what is quick starts nothing
        apart.configure(config)
    # of a shell's background job: children would inherit it
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    if config.getoption("quick"):
        config.pluginmanager.register(quick.Quick())
    config.pluginmanager.register(sharing.Sharing())
    config.addinivalue_line("markers", "xdist_group(name): runs behind the others of that name, never beside")
    for name, meaning in _MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


@pytest.hookimpl(tryfirst=True)  # before markers are looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Perf-event probes take the kernel 0.1 s each to detach, after the test: such tests come last.

    First among them are those that wait for it, as long as there is little to wait for.
    """
    variants.mark(items)
    for item in items:
        if item.get_closest_marker("bpftrace") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_BPFTRACE_S))
    if config.getoption("quick"):
        quick.select(config, items)
    items.sort(key=_place)


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """What is left goes with the process: pytest would look at all of it five times more."""
    gc.collect()
    gc.freeze()


def _place(item: pytest.Item) -> int:
    if item.get_closest_marker("drains") is not None:
        return 1
    return 2 if "perf" in item.nodeid or "5.15" in item.name else 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips or fails a test whose marker asks for what is not there."""
    for marker, missing in (("ebpf", missing_for_ebpf), ("bpftrace", missing_for_bpftrace)):
        if item.get_closest_marker(marker) is not None and (reason := missing()):
            skip_or_fail(reason)


@pytest.fixture(params=["multi", pytest.param("pairs", marks=pytest.mark.long), "perf"])
def traced_names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> frozenset[str]:
    """The functions that are traced: attached as newer kernels can, then as Linux 6.6 and 5.15 can.

    What is exact with sessions is exact with pairs of multi-uprobe links, and with perf events.
    """
    monkeypatch.setenv("GPUTOP_ATTACH", request.param)
    return degradation.MINIMAL if request.param == "perf" else frozenset(api.NAMES)


@pytest.fixture(scope="session", autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The folder of this run's files is made first: pytest then closes that of all runs to other users."""
    tmp_path_factory.getbasetemp()


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for nobody; the simulated GPUs meet there."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        os.chown(name, rootless_support.NOBODY, rootless_support.NOBODY)
        yield Path(name)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A simulated machine, for programs that a test starts there."""
    return Bench(tmp_path)


@pytest.fixture
def workload(bench: Bench) -> Iterator[int]:
    """The process of a program that keeps its GPU half busy."""
    with bench.half_busy() as process:
        yield process.pid


@pytest.fixture
def child() -> Iterator[file_reader.Reader]:
    """The confined child that reads others' files."""
    yield file_reader.start(reader_child)
    file_reader.stop()


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A runtime whose file never answers."""
    if os.geteuid() != 0:
        skip_or_fail("only root may mount")
    from tests import hostile_files  # which asks this module

    with hostile_files.hanging_runtime(tmp_path / "mounted") as place:
        yield place


@pytest.fixture(autouse=True)
def screens_end() -> Iterator[None]:
    """Screens that a test has left open are closed."""
    yield
    if "tests.screen_support" in sys.modules:
        sys.modules["tests.screen_support"].close_all()
