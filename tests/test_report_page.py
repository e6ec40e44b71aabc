"""The page of ``gputop report``: its figures are those of ``explain --json``, and it asks for nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.report_page.report_html import report_page
from probes.source import FRAMES, Sample
from replay.writer import SessionWriter
from tests import hostile_names, items
from tests.browser import opened
from tests.each_recording import FILES as EACH
from tests.typed import typed

# not in make check, which ends a test where it starts a process: Playwright would leave its loop running then
BROWSER = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
STORM = ROOT / "recordings" / "storm.msgpack"
LARGEST = 2_000_000


def page_of(recording: Path, folder: Path) -> Path:
    """The page of a recording."""
    path = folder / f"{recording.stem}.html"
    assert typed("report", str(recording), "-o", str(path)) == 0
    return path


def at(document: Any, key: str) -> Any:
    """What stands at a place of a document: ``findings.0.loss_ns.lower``."""
    for part in key.split("."):
        document = document[int(part) if part.isdigit() else part]
    return document


def wanted(document: Any) -> set[str]:
    """The places whose figures a reader of the page must find."""
    keys = {f"gpus.{row}.span_ns" for row in range(len(document["gpus"]))}
    for row in range(len(document["findings"])):
        keys |= {f"findings.{row}.loss_ns.{end}" for end in ("lower", "upper", "estimate")}
        keys.add(f"findings.{row}.max_gain_ns")
    return keys | {"outside_ns", "small_ns", "unexplained_ns", "unknown_ns", "lost.events"}


@pytest.mark.slow
@pytest.mark.parametrize("recording", EACH)
def test_a_page_is_small_and_names_no_other_place(recording: Path, tmp_path: Path) -> None:
    page = page_of(recording, tmp_path).read_text(encoding="utf-8")
    assert len(page.encode()) < LARGEST
    assert not re.search(r"""https?://|//www|\bsrc=|\bhref=(?!"#s\d")|url\(|@import|fetch\(|XMLHttp""", page)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none';")
    assert "unsafe" not in policy[1]


@BROWSER
@pytest.mark.parametrize(
    "name",
    ["storm", *(pytest.param(name, marks=pytest.mark.long) for name in ("dataloader-workers", "healthy"))],
)
def test_in_a_browser_every_figure_is_that_of_explain_and_nothing_is_requested(
    name: str, tmp_path: Path
) -> None:
    recording = ROOT / "recordings" / f"{name}.msgpack"
    document: Any = json.loads(json.dumps(gputop.to_json(gputop.explain(recording))))
    with opened(page_of(recording, tmp_path)) as shown:
        figures = shown.page.eval_on_selector_all(
            "data[data-key]", "all => all.map(one => [one.dataset.key, one.value])"
        )
        assert wanted(document) <= {key for key, _ in figures}
        for key, value in figures:
            assert json.loads(value) == at(document, key), key
        assert shown.page.text_content("[data-key=verdict]") == document["verdict"]
        assert json.loads(shown.page.text_content("#explain")) == document
        titles = shown.page.eval_on_selector_all("article h3", "all => all.map(one => one.textContent)")
        assert [one["title"] in title for one, title in zip(document["findings"], titles, strict=True)].count(
            False
        ) == 0
        text = shown.page.inner_text("main")
        for finding in document["findings"]:
            for sentence in (*finding["evidence"], *finding["ruled_out"], *finding["advice"]):
                assert sentence in text
            for link in finding["chain"]:
                assert link["text"] in text
        assert (shown.asked, shown.complaints) == ([], [])


@pytest.mark.long
@BROWSER
def test_the_tables_are_those_of_stats_and_sort_by_their_exact_figures(tmp_path: Path) -> None:
    totals = gputop.stats(STORM)
    sums = sorted(call.sum_ns for process in totals.processes for call in process.calls)
    with opened(page_of(STORM, tmp_path)) as shown:
        table = shown.page.locator("table").first
        head = table.locator("th", has_text="sum")
        column = head.evaluate("one => one.cellIndex")

        def cells() -> list[int]:
            rows = table.locator("tbody tr").evaluate_all(
                "(rows, column) => rows.map(row => row.cells[column].querySelector('data').value)", column
            )
            return [int(value) for value in rows]

        assert cells() == sums[::-1]
        table.locator("th", has_text="count").locator("button").click()
        assert cells() != sums[::-1]
        head.locator("button").click()
        assert cells() == sums[::-1]
        head.locator("button").click()
        assert cells() == sums
        assert head.get_attribute("aria-sort") == "ascending"
        assert shown.complaints == []


@pytest.mark.long
@BROWSER
def test_a_box_of_the_flame_graph_grows_and_all_come_back(tmp_path: Path) -> None:
    with opened(page_of(STORM, tmp_path)) as shown:
        boxes = shown.page.locator("svg.flame >> nth=1 >> css=:scope > svg")
        widths = boxes.evaluate_all("all => all.map(one => one.getAttribute('width'))")
        assert float(widths[2].rstrip("%")) < 50
        boxes.nth(2).click()
        assert boxes.nth(2).get_attribute("width") == "100%"
        boxes.nth(2).click()
        again = boxes.evaluate_all("all => all.map(one => one.getAttribute('width'))")
        assert [float(width[:-1]) for width in again] == pytest.approx(
            [float(width[:-1]) for width in widths]
        )


@pytest.mark.long
@BROWSER
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.mainly("True")
def test_on_a_phone_nothing_runs_out_of_the_screen_in_either_colours(dark: bool, tmp_path: Path) -> None:
    with opened(page_of(STORM, tmp_path), width=390, dark=dark) as shown:
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
        colour = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colour == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


@BROWSER
def test_names_that_are_meant_to_do_harm_are_shown_as_what_they_are(tmp_path: Path) -> None:
    path = page_of(hostile_names.write(tmp_path / "names.msgpack"), tmp_path)
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e\u2066\ud800-\udfff]", page)
    assert page.count("<script") == 2
    assert len(page.encode()) < LARGEST
    with opened(path) as shown:
        assert (shown.asked, shown.complaints) == ([], [])
        assert shown.page.locator("img, iframe, object, form, a:not(nav a)").count() == 0
        assert shown.page.locator("[onerror], [onmouseover], [style]").count() == 0
        assert "</script><script>alert(1)</script>" in shown.page.inner_text("main")
        assert "a\\x1b[2J\\x07\\x00b" in shown.page.inner_text("main")


@pytest.mark.slow
@pytest.mark.long
def test_a_page_of_very_many_lines_and_calls_stays_small_and_says_what_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "many.msgpack"
    writer = SessionWriter(path, items.HEADER)
    writer.write(items.apis())
    for pid in range(100, 160):
        writer.write(items.process(pid))
        stacks = [(pid * 100 + row) << 32 for row in range(60)]  # as large as hashes are
        frames = [
            [[f"{'deep/' * 20}file{stack}.py", line, f"function{stack}" * 9] for line in range(4)]
            for stack in stacks
        ]
        writer.write(Sample(FRAMES, items.START, {"pid": [pid] * 60, "stack": stacks, "frames": frames}))
        calls = [
            items.call(items.START + (row + 1) * items.MS, 1000 + row, pid=pid, tid=pid, stack=stack)
            for row, stack in enumerate(stacks)
        ]
        writer.write(items.joined(calls))
    writer.write(items.mark(1, items.START + items.SECOND))
    writer.close()
    with gputop.open_session(path) as session:
        page = report_page(session, "many")
    assert len(page.encode()) < LARGEST
    assert "3300 more rows: gputop stats" in page


@pytest.mark.slow
def test_a_page_that_is_there_is_left_as_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    path.write_text("mine")
    assert typed("report", str(STORM), "-o", str(path)) == 1
    assert "exists already" in capfd.readouterr().err
    assert path.read_text() == "mine"


def test_a_page_says_when_what_where_and_by_what_and_has_a_table_of_contents(tmp_path: Path) -> None:
    page = page_of(ROOT / "recordings" / "dataloader-workers.msgpack", tmp_path).read_text(encoding="utf-8")
    facts = dict(re.findall(r"<dt>(\w+)</dt><dd>(.*?)</dd>", page))
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, [\d.]+s", facts["recorded"])
    totals = gputop.stats(ROOT / "recordings" / "dataloader-workers.msgpack")
    assert any(process.command in facts["program"] for process in totals.processes)
    assert "CPUs" in facts["machine"]
    assert "Linux" in facts["machine"]
    assert facts["gputop"] == "0.1.0"
    nav = re.search(r"<nav.*?</nav>", page)
    assert nav is not None
    linked = re.findall(r'href="#(s\d)">([^<]+)<', nav[0])
    assert linked == re.findall(r'<section id="(s\d)"><h2>([^<]+)</h2>', page)
    assert {"Timeline", "Findings", "Totals"} <= {head for _name, head in linked}


def test_lanes_have_names_that_differ_and_each_block_its_label(tmp_path: Path) -> None:
    page = page_of(ROOT / "recordings" / "dataloader-workers.msgpack", tmp_path).read_text(encoding="utf-8")
    names = [name for name in re.findall(r'<div class="name">([^<]+)</div>', page) if name != "moments"]
    assert len({name[:8] for name in names}) == len(names) > 3, "also where a phone cuts them"
    articles = re.findall(r"<article>.*?</article>", page, re.DOTALL)
    assert articles
    for article in articles:
        lists = re.findall(r'<(?:ul|ol) class="(\w+)"', article)
        labels = re.findall(r"<h4>([^<]+)</h4><(?:ul|ol) class=\"(\w+)\"", article)
        assert [kind for _label, kind in labels] == lists
        assert {"evidence", "to change"} <= {label for label, _kind in labels}
    assert "Energy: GPU 0 took" in page
