"""``gputop fleet report``: one page about a lake, whose figures are those of the other questions."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gputop.commands import cli
from gputop.fleet.ingest import ingest
from gputop.fleet.lake.lake_summary import summed
from gputop.fleet.lake_html import ROWS, fleet_page
from gputop.format import escape_text
from tests import hostile_names
from tests.browser import Opened, opened
from tests.conftest import needed
from tests.fleet_jobs import CPU, Job, record
from tests.made_lake import made, sessions
from tests.typed import typed

# not in make check, which ends a test where it starts a process: Playwright would leave its loop running then
BROWSER = pytest.mark.slow
RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
LATE = Job(7, late=1, ms=9, how=CPU)
HARM = "<img src=x onerror=alert(1)>.msgpack"
OVERVIEWS = {"cause": "By cause", "line": "By line", "user": "By user", "job": "By job"}
LARGEST = 2_000_000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Planted causes, a healthy session, a late rank, a torn file, and names that are meant to do harm."""
    needed("duckdb")
    needed("pyarrow")
    folder = tmp_path_factory.mktemp("sessions")
    for name in ("dataloader", "numpy-sync", "healthy"):
        shutil.copy(RECORDINGS / f"{name}.msgpack", folder)
    whole = (RECORDINGS / "storm.msgpack").read_bytes()
    (folder / "torn.msgpack").write_bytes(whole[: len(whole) * 2 // 3])
    hostile_names.write(folder / HARM)
    record(folder, LATE)
    record(folder, Job(8))
    into = tmp_path_factory.mktemp("lakes") / "lake"
    ingest([str(folder)], str(into), 1)
    return into


@pytest.fixture(scope="module")
def page(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page about it."""
    path = tmp_path_factory.mktemp("pages") / "lake.html"
    assert typed("fleet", "report", str(lake), "-o", str(path)) == 0
    return path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], list[list[Any]]]:
    """What a question's ``--json`` says: columns, rows."""
    capsys.readouterr()
    assert cli.run(["fleet", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert not told["more"]
    return told["columns"], told["rows"]


def cells(shown: Opened, caption: str) -> list[list[Any]]:
    """A table as numbers and texts: figures exactly, "-" without one is null."""
    table = shown.page.locator("table", has=shown.page.locator(f"caption:text-is('{caption}')"))
    rows: list[list[Any]] = table.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => { const data = cell.querySelector('data');"
        " return data ? JSON.parse(data.value) : cell.textContent === '-' ? null : cell.textContent; }))"
    )
    return rows


def as_shown(rows: list[list[Any]]) -> list[list[Any]]:
    """Texts as the page has them."""
    return [[escape_text(cell)[:150] if isinstance(cell, str) else cell for cell in row] for row in rows]


def cut(rows: list[list[Any]]) -> list[list[Any]]:
    """The same of what is read there, which may be longer."""
    return [[cell[:150] if isinstance(cell, str) else cell for cell in row] for row in rows]


@pytest.mark.long
def test_the_page_names_no_other_place_and_no_script_of_others_may_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    assert not re.search(r"""https?://|//www|\bsrc="|\bhref=(?!"#s\d")|url\(|@import|fetch\(|XMLHttp""", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none';")
    assert "unsafe" not in policy[1]


@pytest.mark.long
@BROWSER
def test_in_a_browser_every_figure_is_that_of_the_questions_and_nothing_is_requested(
    lake: Path, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(page) as shown:
        for by, caption in OVERVIEWS.items():
            _, rows = printed(capsys, "overview", str(lake), "--by", by)
            assert rows
            assert cut(cells(shown, caption)) == as_shown(rows), by
        _, rows = printed(capsys, "findings", str(lake))
        assert cut(cells(shown, "Findings, most expensive first")) == as_shown(rows)
        columns, rows = printed(capsys, "stragglers", str(lake))
        (row,) = cells(shown, "Ranks that other ranks wait for")
        (late,) = (dict(zip(columns, row, strict=True)) for row in rows)
        assert row[:8] == [late[name] for name in (
            "job", "late_rank", "host", "process", "late_ms", "share", "last", "gpu_hours"
        )]  # fmt: skip
        assert late["late_rank"] == LATE.late
        assert (shown.asked, shown.complaints) == ([], [])


@pytest.mark.long
@BROWSER
def test_coverage_is_the_sum_of_the_sessions_and_what_is_wrong_is_reported(
    lake: Path, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, rows = printed(capsys, "sql", str(lake), "SELECT * FROM sessions")
    sums = {
        name: sum(row[place] or 0 for row in rows)
        for place, name in enumerate(columns)
        if name.endswith("_ns")
    }
    with opened(page) as shown:
        told = dict(cells(shown, "GPU time"))
        assert told["GPU time recorded"] == sums["gpu_span_ns"]
        assert told["certainly idle"] == sums["idle_lower_ns"]
        assert told["idle at most"] == sums["idle_upper_ns"]
        assert told["idle, unexplained"] == sums["unexplained_ns"]
        assert [row[0] for row in cells(shown, "Problems of files")] == ["torn"]
        assert "torn: 1, with losses: 0, unreadable: 0" in shown.page.inner_text("main")
        parts = shown.page.eval_on_selector_all(".account data", "all => all.map(one => Number(one.value))")
        assert sum(parts) == sums["gpu_span_ns"]


@pytest.mark.long
@BROWSER
def test_tables_sort_by_their_exact_figures_and_what_is_not_known_is_least(page: Path) -> None:
    with opened(page) as shown:
        table = shown.page.locator("table", has=shown.page.locator("caption:text-is('By cause')"))
        head = table.locator("th", has_text="proved")
        column = head.evaluate("one => one.cellIndex")

        def proved() -> list[float | None]:
            return [row[column] for row in cells(shown, "By cause")]

        head.locator("button").click()
        known = [one for one in proved() if one is not None]
        assert None in proved()
        assert known == sorted(known, reverse=True)
        assert proved()[: len(known)] == known
        head.locator("button").click()
        assert proved()[-len(known) :] == known[::-1]
        assert head.get_attribute("aria-sort") == "ascending"


@pytest.mark.long
@BROWSER
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.mainly("False")
def test_on_a_phone_nothing_runs_out_of_the_screen_in_either_colours(dark: bool, page: Path) -> None:
    with opened(page, width=390, dark=dark) as shown:
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
        colour = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colour == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


@BROWSER
@pytest.mark.long
def test_names_that_are_meant_to_do_harm_are_shown_as_what_they_are(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e\u2066\ud800-\udfff]", text)
    assert text.count("<script") == 1
    with opened(page) as shown:
        assert shown.page.locator("img, iframe, object, form, a:not(nav a)").count() == 0
        assert shown.page.locator("[onerror], [onmouseover], [style]").count() == 0
        assert HARM in shown.page.inner_text("main")
        assert "</script><script>alert(1)</script>" in shown.page.inner_text("main")
        assert shown.complaints == []


def test_a_lake_of_thousands_of_sessions_is_a_small_page_that_says_what_is_left_out() -> None:
    needed("duckdb")
    rows = sessions(3_000)
    database = made(rows)
    try:
        summary = summed(database, ROWS, 60)
    finally:
        database.close()
    text = fleet_page(summary, "many")
    assert len(text.encode()) < LARGEST
    idle = [row for row in rows["findings"] if row["kind"] == "idle"]
    lines = len({(row["cause"], row["file"], row["line"]) for row in idle})
    for total, where in (
        (lines, "gputop fleet overview --by line"),
        (len({row["job"] for row in idle}), "gputop fleet overview --by job"),
        (len(rows["findings"]), "gputop fleet findings"),
        (len(rows["sessions"]), "gputop fleet sql"),
    ):
        assert f"{total - ROWS} more rows: {where}" in text
    by_cause: Counter[str] = Counter()
    for row in idle:
        by_cause[row["cause"]] += row["loss_ns"] / 3.6e12
    told = summary.overviews["cause"].answer
    hours = {row[0]: row[told.columns.index("gpu_hours")] for row in told.rows}
    assert hours == pytest.approx(by_cause)
    assert summary.coverage["lost_events"] == sum(row["lost_events"] for row in rows["sessions"])
    assert summary.wrong == {"lossy": len(rows["problems"])}


def test_what_was_kept_as_sums_only_is_no_gpu_time_and_is_reported() -> None:
    needed("duckdb")
    rows = sessions(4)
    for row in rows["sessions"]:
        row["unkept_ns"] = 0
    sums = {"session_id": "s" * 64, "path": "/sums", "duration_ns": 9, "start_wall_ns": 0, "lost_events": 0}
    span = sum(row["gpu_span_ns"] for row in rows["sessions"])
    rows["sessions"].append(sums | {"unkept_ns": 3_000_000_000})
    database = made(rows)
    try:
        summary = summed(database, ROWS, 60)
    finally:
        database.close()
    assert (summary.coverage["gpu_ns"], summary.coverage["without_gpu"]) == (span, 1)
    assert "time with sums only, not explained: 3.00s" in fleet_page(summary, "sums")


def test_a_lake_of_nothing_is_a_page_that_says_so(tmp_path: Path) -> None:
    needed("duckdb")
    needed("pyarrow")
    ingest([], str(tmp_path / "lake"), 1)
    assert typed("fleet", "report", str(tmp_path / "lake"), "-o", str(tmp_path / "page.html")) == 0
    assert "No recording here has GPU data." in (tmp_path / "page.html").read_text()


def test_a_page_that_is_there_is_left_as_it_is(
    lake: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    path.write_text("mine")
    assert typed("fleet", "report", str(lake), "-o", str(path)) == 1
    assert "exists already" in capfd.readouterr().err
    assert path.read_text() == "mine"
