"""Additions are made in as many files as docs/contributing.md says, in a copy of the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.conftest import needed

ROOT = Path(__file__).resolve().parents[1]
RECORDING = "recordings/dataloader.msgpack"
pytestmark = pytest.mark.slow

# file -> (text before which it goes, or "" for a new file; what is added)
Addition = dict[str, tuple[str, str]]
COLUMN: Addition = {
    "gputop/ui/model/listing/process_table.py": (
        '    Column("pid", "PID"',
        '    Column("twice", "TWICE", 7, lambda r, c, w: (str(2 * r.pid), ""), lambda r: r.pid, keep=101),\n',
    ),
    "gputop/ui/model/pages.py": ('    "CALLS/s": "CUDA calls', '    "TWICE": "twice the pid",\n'),
}
EXPORT: Addition = {
    "gputop/exchange/file_name.py": (
        "",
        "def write_name(session, file, progress=None):\n    file.write(session.path.encode())\n",
    ),
    "gputop/exchange/formats.py": (
        '    "perfetto": Format(',
        '    "name": Format("cat {}", __import__("gputop.exchange.file_name", fromlist=["_"]).write_name),\n',
    ),
}
METRIC: Addition = {
    "gputop/serve/metrics/metric_families.py": (
        '        ("gputop_clients"',
        '        ("gputop_twice_probes", "Twice the functions traced.", 2 * now.probes),\n',
    )
}
PANE: Addition = {
    "gputop/ui/model/process/reported.py": (
        "def memory_lines(",
        "def echo_lines(pid: int) -> list[Line]:\n    return [((f'the pid is {pid}', ''),)]\n\n\n",
    ),
    "gputop/ui/panes/reported_panes.py": (
        "class MemoryPane(",
        "class EchoPane(Reported):\n    name_shown = 'Echo'\n\n"
        "    def known(self, row, report):\n        return True\n\n"
        "    def text(self, row, report, width):\n"
        "        from gputop.ui.model.process.reported import echo_lines\n\n"
        "        return echo_lines(row.pid)\n\n\n",
    ),
    "gputop/ui/panes/detail_panes.py": (
        '            MemoryPane(view, id="memory"),',
        "            __import__('gputop.ui.panes.reported_panes', fromlist=['_'])"
        ".EchoPane(view, id='echo'),\n",
    ),
}
KEY: Addition = {
    "gputop/engine/frame.py": (
        "@dataclass(frozen=True, slots=True)\nclass CallRow(",
        "    @property\n    @marked(Mark())\n    def twice_count(self) -> int:\n"
        '        """Twice the calls."""\n        return 2 * self.count\n\n\n',
    ),
    "docs/json.md": ("**A GPU**, as NVML", "`twice_count`: twice the calls.\n\n"),
}
FIGURE: Addition = {
    "probes/nvml/nvml_gpu.py": (
        '    NvmlQuery(("pcie_width",)',
        '    NvmlQuery(("board_id",), _of(pynvml.nvmlDeviceGetBoardId), _HARDLY_EVER),\n',
    ),
    "gputop/engine/frame.py": ("    mig_enabled: bool", "    board_id: int | None = None\n"),
    "docs/json.md": ("| `mig_enabled`, `mig` |", "| `board_id` | number of the board |\n"),
}
ROWS = {
    "add a column": COLUMN,
    "export for another tool": EXPORT,
    "add a metric": METRIC,
    "add a tab": PANE,
    "print another key as JSON": KEY,
    "read another figure of NVML": FIGURE,
}
NUMBERS = {"one file": 1, "two files": 2, "three files": 3}
SHOW_METRICS = """
from gputop.serve.metrics.metric_families import CurrentFigures, GputopCollector
from gputop.serve.metrics.daemon_totals import DaemonTotals
from gputop.serve.metrics.idle import Idle
now = CurrentFigures({}, 0.0, 0, 21, 21, 0, 0, 0, {}, {}, {"version": "1"})
for family in GputopCollector(DaemonTotals(), Idle(), lambda: now).collect():
    print(*(f"{one.name} {one.value:g}" for one in family.samples), sep="\\n")
"""
SHOW_FIGURE = """
import json
import gputop
from gputop.documents.fields import document
from gputop.engine.facts import Facts
from gputop.engine.gpus.nvml_rows import gpu_rows
from probes.nvml.nvml_gpu import QUESTIONS
from probes.source import GPUS, Sample
(key,) = [key for query in QUESTIONS for key in query.keys if key == "board_id"]
(row,) = gpu_rows(Sample(GPUS, 1, {"gpus": [{"index": 0, key: 7}]}), {}, 1, Facts())
print(json.dumps([document(row), gputop.schema("gputop.frame/1")]))
"""
SHOW_SCHEMA = "import gputop, json; print(json.dumps(gputop.schema('gputop.frame/1')))"
SHOW_PANE = """
import asyncio
from tests import fake_frames as fake
from tests.screen_support import running, text_of
async def main():
    async with running(fake.frame()) as (app, feed, pilot):
        tabs = app.screen.query_one("Tabs")
        tabs.active = "tab-echo"
        await pilot.pause()
        app.show()
        await pilot.pause()
        print(text_of(app))
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with all additions."""
    place = tmp_path_factory.mktemp("checkout")
    unneeded = shutil.ignore_patterns("__pycache__", "screens", "*.so", "*.o")
    for folder in ("gputop", "probes", "replay", "tests", "docs"):
        shutil.copytree(ROOT / folder, place / folder, ignore=unneeded)
    (place / "recordings").mkdir()
    shutil.copy(ROOT / RECORDING, place / RECORDING)
    for addition in ROWS.values():
        for file, (before, text) in addition.items():
            path = place / file
            old = path.read_text() if before else ""
            assert old.count(before) == 1 or not before, file
            path.write_text(old.replace(before, text + before) if before else text)
    return place


@pytest.fixture
def python(checkout: Path) -> Callable[..., str]:
    """Runs Python in the copy; returns its output."""

    def run(*words: str) -> str:
        kept = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "240"}
        done = subprocess.run(
            [sys.executable, *words], cwd=checkout, env=kept, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("row", ROWS)
def test_the_page_says_how_many_files_it_takes(row: str) -> None:
    lines = (ROOT / "docs/contributing.md").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {row} |")]
    said = line.split("|")[2].split(":")[0].strip()
    assert NUMBERS[said] == len(ROWS[row])


def test_a_column_is_shown(python: Callable[..., str]) -> None:
    shown = python("-m", "gputop", "replay", RECORDING, "--once")
    assert "TWICE" in shown
    assert "4242 " in shown
    assert "twice the pid" in python("-c", "from gputop.ui.model.pages import COLUMNS_HELP as c; print(c)")


def test_an_export_is_written(python: Callable[..., str], tmp_path: Path) -> None:
    python("-m", "gputop", "export", RECORDING, "--to", "name", "-o", str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == RECORDING


def test_a_metric_is_reported(python: Callable[..., str]) -> None:
    needed("prometheus_client")
    shown = python("-c", SHOW_METRICS).splitlines()
    probes = next(float(line.split()[1]) for line in shown if line.startswith("gputop_probes_active "))
    assert f"gputop_twice_probes {2 * probes:g}" in shown
    assert probes > 0


def test_a_key_is_printed_and_in_the_schema(python: Callable[..., str]) -> None:
    frame = json.loads(python("-m", "gputop", "replay", RECORDING, "--once", "--json"))
    calls = [call for process in frame["processes"] for call in process["calls"]]
    assert calls
    assert all(call["twice_count"] == 2 * call["count"] for call in calls)
    Draft202012Validator(schema := json.loads(python("-c", SHOW_SCHEMA))).validate(frame)
    assert "twice_count" in schema["$defs"]["CallRow"]["required"]


def test_a_figure_of_nvml_is_read_printed_and_in_the_schema(python: Callable[..., str]) -> None:
    row, schema = json.loads(python("-c", SHOW_FIGURE))
    assert row["board_id"] == 7
    assert schema["$defs"]["GpuRow"]["properties"]["board_id"]["type"] == ["integer", "null"]


def test_a_tab_is_shown(python: Callable[..., str]) -> None:
    assert "the pid is" in python("-c", SHOW_PANE)
