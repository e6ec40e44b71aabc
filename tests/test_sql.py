"""``gputop sql``: DuckDB answers over the tables that export writes, and can do nothing else."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.commands import cli
from gputop.errors import GputopError
from gputop.exchange.session_tables import COLUMNS
from gputop.query import database
from gputop.query.database import Database
from gputop.query.meanings import MEANINGS, ROWS
from tests import hostile_names, inside
from tests.cli_support import assert_one_sentence
from tests.conftest import needed
from tests.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[1]
STORM = ROOT / "recordings" / "storm.msgpack"
SMALL = ROOT / "recordings" / "numpy-sync.msgpack"


@pytest.fixture(scope="module")
def storm() -> Iterator[Database]:
    needed("duckdb")
    with gputop.open_session(STORM) as session:
        database = Database(session)
    yield database
    database.close()


@pytest.mark.slow
def test_calls_add_up_to_what_stats_says(storm: Database) -> None:
    answer = storm.query(
        "select pid, api, nested, count(*), sum(duration_ns) from calls group by all", 999, 30
    )
    rows = {(pid, api, nested): (count, int(ns)) for pid, api, nested, count, ns in answer.rows}
    assert rows == {
        (process.pid, call.api, call.nested): (call.count, call.sum_ns)
        for process in gputop.stats(STORM).processes
        for call in process.calls
    }


@pytest.mark.slow
def test_every_table_holds_what_the_parquet_export_holds(storm: Database, tmp_path: Path) -> None:
    duckdb = needed("duckdb")
    needed("pyarrow")
    folder = tmp_path / "storm"
    assert cli.run(["export", str(STORM), "--to", "parquet", "-o", str(folder)]) == 0
    for table, columns in COLUMNS.items():
        names = ", ".join(f'"{name}"' for name in columns)
        ours = storm.query(f'select {names} from "{table}" order by all', 1_000_000, 60)
        theirs = duckdb.sql(f"select {names} from '{folder / table}.parquet' order by all").fetchall()
        assert ours.columns == tuple(columns)
        assert list(ours.rows) == theirs, table


def test_the_page_shows_each_column_and_what_it_means() -> None:
    page = (ROOT / "docs" / "exchange.md").read_text()
    assert set(ROWS) == set(COLUMNS)
    for table, columns in COLUMNS.items():
        row = re.search(rf"^\| `{table}` \| (.*?) \| (.*) \|$", page, re.MULTILINE)
        assert row is not None
        assert row[1] == ROWS[table]
        assert set(columns) <= set(re.findall(r"`(\w+)`", row[2]))
        for column, meaning in MEANINGS.get(table, {}).items():
            assert column in columns
            assert f"`{column}` ({meaning})" in row[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "from '/etc/passwd'",
        "from read_text('/etc/passwd')",
        "from read_csv('/etc/passwd')",
        "from read_blob('/proc/self/environ')",
        "from glob('/*')",
        "from parquet_scan('recordings/x.parquet')",
        "from sqlite_scan('a', 'b')",
        "select getenv('HOME')",
        "select * from pandas_scan(140000000000000)",
        "select * from arrow_scan(1, 2, 3)",
        "from session",
        "from STORM",
        "drop table calls",
        "delete from calls",
        "insert into calls select * from calls",
        "update calls set pid = 1",
        "create table x (i int)",
        "create or replace table calls as select 1",
        "copy calls to '/tmp/gputop-sql-escaped.csv'",
        "attach '/tmp/gputop-sql-escaped.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access=true",
        "reset lock_configuration",
        "pragma disable_checkpoint_on_shutdown",
        "export database '/tmp/gputop-sql-escaped'",
        "select 1; drop table calls",
        "select 1) ; drop table calls --",
        "explain analyze delete from calls",
        "from query('delete from calls')",
        "",
        "selekt",
    ],
)
def test_nothing_but_a_select_over_the_tables_is_answered(storm: Database, query: str) -> None:
    before = storm.query("select count(*), sum(duration_ns) from calls", 1, 30).rows
    with pytest.raises(GputopError):
        storm.query(query, 10, 30)
    assert storm.query("select count(*), sum(duration_ns) from calls", 1, 30).rows == before
    assert not list(Path("/tmp").glob("gputop-sql-escaped*"))


def test_the_secrets_of_who_asks_are_not_there(storm: Database) -> None:
    assert storm.query("from duckdb_secrets()", 10, 30).rows == ()


def test_rows_are_bounded_and_what_is_left_out_is_reported(storm: Database) -> None:
    answer = storm.query("select * from range(100000000000);", 3, 30)
    assert (answer.rows, answer.more) == (((0,), (1,), (2,)), True)
    whole = storm.query("select 1 as one -- a comment", 3, 30)
    assert (whole.columns, whole.rows, whole.more) == (("one",), ((1,),), False)


@pytest.mark.slow
def test_a_query_without_end_is_given_up_and_the_next_one_is_answered(storm: Database) -> None:
    with pytest.raises(GputopError, match=r"longer than 0\.5 s"):
        storm.query(
            "with recursive t as (select 1 i union all select i from t) select count(*) from t", 1, 0.5
        )
    assert storm.query("select 1", 1, 30).rows == ((1,),)


def test_several_threads_ask_at_once_and_each_gets_its_own_answer(storm: Database) -> None:
    found: dict[int, object] = {}

    def ask(number: int) -> None:
        found[number] = storm.query(f"select {number}, count(*) from calls", 1, 60).rows[0]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = storm.query("select count(*) from calls", 1, 30).rows[0][0]
    assert found == {number: (number, count) for number in range(20)}


@pytest.mark.long
def test_a_text_too_long_for_the_machine_ends_the_query_not_the_machine() -> None:
    needed("duckdb")
    code = (
        "import sys, gputop; from gputop.query.forked import bound_memory; "
        "from gputop.query.database import Database; bound_memory(1 << 30); "
        "database = Database(gputop.open_session(sys.argv[1]))\n"
        "try: database.query(\"select length(repeat('x', 3000000000))\", 1, 300)\n"
        "except gputop.GputopError as error: print(error)\n"
        "print(database.query('select 1', 1, 300).rows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(STORM)], capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    assert "more than 2GB of memory" in done.stdout, done.stderr
    assert done.stdout.endswith("((1,),)\n")


def test_a_query_forks_a_process_in_which_no_thread_of_the_database_may_hold_a_lock() -> None:
    needed("duckdb")

    def fill(connection: Any) -> None:
        connection.execute("CREATE TABLE numbers AS SELECT range AS one FROM range(100000)")

    before = len(os.listdir("/proc/self/task"))
    locked = database.LockedDatabase(fill)
    after = len(os.listdir("/proc/self/task"))
    assert locked.query("SELECT sum(one) FROM numbers", 1, HANGS_S).rows == ((4_999_950_000,),)
    locked.close()
    assert after <= before


@pytest.mark.slow
def test_a_recording_too_long_for_its_memory_is_reported_before_all_of_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed("duckdb")
    monkeypatch.setattr(database, "SESSION_BOUNDS", ("SET memory_limit='8MB'", "SET temp_directory=''"))
    with (
        pytest.raises(GputopError, match=r"its tables take more than .* gputop export --to parquet"),
        gputop.open_session(STORM) as session,
    ):
        Database(session)


@pytest.mark.slow
def test_it_is_printed_as_a_table_as_json_and_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    needed("duckdb")
    query = "select api, count(*) as n from calls where not nested group by api order by n desc, api limit 2"
    rows = [["cudaLaunchKernel", 1452], ["cudaMemcpyAsync", 1210]]
    assert cli.run(["sql", query, str(SMALL)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["api", "n"],
        *([api, str(count)] for api, count in rows),
    ]
    assert cli.run(["sql", query, str(SMALL), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"columns": ["api", "n"], "rows": rows, "more": False}
    assert cli.run(["sql", query, str(SMALL), "--csv", "--limit", "1"]) == 0
    shown = capsys.readouterr()
    assert list(csv.reader(io.StringIO(shown.out))) == [["api", "n"], ["cudaLaunchKernel", "1452"]]
    assert "first 1 rows" in shown.err


@pytest.mark.parametrize("shape", [[], ["--json"], ["--csv"]], ids=["table", "json", "csv"])
def test_names_that_want_harm_come_out_escaped(
    shape: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed("duckdb")
    file = hostile_names.write(tmp_path / "hostile.msgpack")
    assert cli.run(["sql", "select name, chr(27) || name from processes", str(file), *shape]) == 0
    out = capsys.readouterr().out
    assert not set(out) & {"\x1b", "\x07", "\x00", "\u202e", "\r"}
    if shape == ["--csv"]:
        for row in csv.reader(io.StringIO(out)):
            assert not any(cell.startswith(("=", "+", "-", "@", "\t")) for cell in row)


def test_without_duckdb_a_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with (
        gputop.open_session(STORM) as session,
        pytest.raises(GputopError, match=r"-m pip install 'duckdb>="),
    ):
        Database(session)


def test_a_wrong_query_is_one_sentence() -> None:
    needed("duckdb")
    for query, *says in (
        ("select nothing from calls", "nothing", "not found"),
        ("select * from pg_calls", "pg_calls does not exist; the tables are: activities, calls,"),
        ("drop table calls", "only a single SELECT"),
    ):
        assert_one_sentence(inside.run("sql", query, str(SMALL)), 1, *says)
