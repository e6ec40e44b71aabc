"""``gputop fleet`` over object storage: a real S3 server holds the recordings, the lake, or both."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.commands import cli
from gputop.errors import GputopError
from gputop.fleet.ingest import ingest
from gputop.fleet.lake import urls
from gputop.fleet.lake.lake import add_piece, adding_to, open_lake
from gputop.fleet.lake.lake_tables import COLUMNS
from gputop.fleet.lake.pieces import LakeSelection, Piece
from tests.conftest import needed
from tests.fleet_jobs import CPU, Job, record
from tests.fleet_lakes import asked, content

KEY, SECRET = "AKIATESTTESTTEST0000", "a-secret/that+nobody=prints"
JOBS = (Job(1, late=1, ms=9, how=CPU), Job(2))
RANKS = sum(job.ranks for job in JOBS)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ranks of two jobs, and a file that is no recording."""
    for module in ("duckdb", "pyarrow"):
        needed(module)
    folder = tmp_path_factory.mktemp("ranks")
    for seed, job in enumerate(JOBS):
        record(folder, job, seed)
    (folder / "nonsense.gputop").write_bytes(b"this is no recording")
    return folder


@pytest.fixture(scope="module")
def local(ranks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of these files in a folder."""
    lake = tmp_path_factory.mktemp("lakes") / "local"
    assert ingest([str(ranks)], str(lake), 1).explained == RANKS
    return lake


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server of S3; whoever is started meanwhile finds it."""
    needed("s3fs")
    moto: Any = needed("moto.server")
    variables = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    variables["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        needed("s3fs").S3FileSystem.clear_instance_cache()
        yield variables["AWS_ENDPOINT_URL"]
    running.stop()


@pytest.fixture
def bucket(server: str, request: pytest.FixtureRequest) -> str:
    """A new bucket, as a URL."""
    name = f"b{abs(hash((request.node.name, time.monotonic_ns())))}"
    needed("s3fs").S3FileSystem().mkdir(name)
    return f"s3://{name}"


def uploaded(files: Path, url: str) -> str:
    """Puts files there."""
    needed("s3fs").S3FileSystem().put(f"{files}/", f"{url}/", recursive=True)
    return url


def without_paths(lake: str | Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows but for where recordings lie."""
    return {
        table: asked(lake, f"SELECT * EXCLUDE (path) FROM {table} ORDER BY ALL")
        if "path" in COLUMNS[table]
        else asked(lake, f"SELECT * FROM {table} ORDER BY ALL")
        for table in set(COLUMNS) - {"problems"}
    }


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    """What a command says, row by row."""
    assert cli.run(["fleet", *words, "--csv"]) == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


@pytest.mark.long
def test_recordings_and_lake_in_a_storage_show_what_folders_show_and_a_second_run_fetches_nothing(
    ranks: Path, local: Path, bucket: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, lake = uploaded(ranks, f"{bucket}/sessions"), f"{bucket}/a/lake"
    done = ingest([sessions], lake, 1)
    assert (done.explained, [row["what"] for row in done.problems]) == (RANKS, ["unreadable"])
    assert without_paths(lake) == without_paths(local)
    assert {row[0] for row in asked(lake, "SELECT path FROM sessions")} == {
        f"{sessions}/{file.name}" for file in ranks.iterdir() if file.name != "nonsense.gputop"
    }
    for words in (["overview"], ["findings"], ["stragglers"], ["overview", "--job", "job-1"]):
        names, theirs = (
            printed(capsys, words[0], lake, *words[1:]),
            printed(capsys, words[0], str(local), *words[1:]),
        )
        assert [{**row, "path": ""} for row in names] == [{**row, "path": ""} for row in theirs]
    (row,) = printed(capsys, "sql", lake, "SELECT count(*) AS many FROM collectives")
    assert int(row["many"]) > 0

    before = content(lake)
    monkeypatch.setattr(needed("s3fs").S3FileSystem, "_get_file", None)  # who fetches a recording fails
    again = ingest([sessions], lake, 1)
    assert (again.explained, again.known, again.problems) == (0, RANKS + 1, ())
    monkeypatch.undo()
    assert content(lake) == before


@pytest.mark.long
def test_a_content_that_was_taken_from_a_folder_is_known_in_a_storage(ranks: Path, bucket: str) -> None:
    lake = f"{bucket}/lake"
    assert ingest([str(ranks)], lake, 1).explained == RANKS
    before = content(lake)
    done = ingest([uploaded(ranks, f"{bucket}/sessions")], lake, 1)
    assert (done.explained, done.known) == (0, RANKS + 1)
    assert content(lake) == before


@pytest.mark.long
def test_a_file_that_is_written_again_under_its_name_is_taken(tmp_path: Path, bucket: str) -> None:
    needed("duckdb")
    record(tmp_path, Job(5, ranks=1))
    lake, url = f"{bucket}/lake", uploaded(tmp_path, f"{bucket}/sessions")
    assert ingest([url], lake, 1).explained == 1
    (file,) = tmp_path.iterdir()
    file.unlink()
    record(tmp_path, Job(5, ranks=1, steps=30))
    uploaded(tmp_path, f"{bucket}/sessions")
    assert ingest([url], lake, 1).explained == 1
    assert len(content(lake)["sessions"]) == 2


@pytest.mark.long
def test_what_two_runs_add_at_once_counts_once(local: Path, bucket: str) -> None:
    lake = f"{bucket}/lake"
    rows = {
        table: [dict(zip(columns, row, strict=True)) for row in asked(local, f"SELECT * FROM {table}")]
        for table, columns in COLUMNS.items()
    }
    with adding_to(lake), adding_to(lake):
        add_piece(lake, rows)
        add_piece(lake, rows)
    assert content(lake) == content(local)


def test_files_of_a_run_that_was_killed_do_not_count(
    local: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = f"{bucket}/lake"
    monkeypatch.setattr(
        Piece, "place", property(lambda _self: "elsewhere/list")
    )  # as when the list is missing
    with adding_to(lake):
        add_piece(lake, {"sessions": [dict.fromkeys(COLUMNS["sessions"]) | {"session_id": "0" * 64}]})
    monkeypatch.undo()
    with adding_to(lake):  # another run may write it just now
        pass
    found = needed("s3fs").S3FileSystem().find(lake)
    assert [name for name in found if name.endswith(".parquet")]
    assert asked(lake, "SELECT * FROM sessions") == []


def test_a_question_about_a_job_fetches_its_files_alone(
    local: Path, ranks: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = f"{bucket}/lake"
    ingest([str(ranks)], lake, 1)
    fetched: list[str] = []
    storage = needed("s3fs").S3FileSystem
    get = storage._get_file

    async def counted(self: Any, path: str, *rest: Any, **more: Any) -> Any:
        fetched.append(path)
        return await get(self, path, *rest, **more)

    monkeypatch.setattr(storage, "_get_file", counted)
    database = open_lake(lake, ("findings",), LakeSelection("job-1"))
    try:
        found = database.query("SELECT DISTINCT job FROM findings", 10, 60).rows
    finally:
        database.close()
    assert found == (("job-1",),)
    assert fetched
    assert not [path for path in fetched if "job=job-2" in path]


@pytest.mark.long
def test_a_lake_may_be_in_the_memory_of_a_process_and_a_file_may_be_named_as_url(
    ranks: Path, local: Path
) -> None:
    needed("fsspec")
    done = ingest([f"file://{ranks}"], "memory://fleet/lake", 1)
    assert done.explained == RANKS
    assert content("memory://fleet/lake") == content(local)
    assert content(f"file://{local}") == content(local)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["overview", "s3://no-such-bucket-anywhere/lake"],
        ["ingest", "s3://no-such-bucket-anywhere/sessions", "--into", "{lake}"],
        ["ingest", "{one}", "--into", "s3://no-such-bucket-anywhere/lake"],
        ["overview", "ftp://me:{secret}@127.0.0.1:1/lake"],
        ["ingest", "http://me:{secret}@127.0.0.1:1/one.gputop?X-Amz-Signature={secret}", "--into", "{lake}"],
    ],
)
def test_what_a_storage_refuses_is_a_sentence_and_no_credential_is_in_it(
    words: list[str],
    server: str,
    ranks: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUTOP_LOG", str(tmp_path / "log"))
    one = str(ranks / "1-0.gputop")
    made = [word.format(lake=tmp_path / "lake", one=one, secret=SECRET) for word in words]
    assert cli.run(["fleet", "-vv", *made]) == 1
    said = "".join(capfd.readouterr()) + (tmp_path / "log").read_text()
    assert "cannot be" in said
    assert SECRET not in said
    assert KEY not in said


def test_credentials_in_a_url_are_not_kept_in_the_lake() -> None:
    url = f"ftp://me:{SECRET}@host/one.gputop"
    assert urls.shown(f"{url} and s3://b/k?X-Amz-Signature=abc") == "ftp://host/one.gputop and s3://b/k"


def test_without_what_a_storage_needs_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    needed("fsspec")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(GputopError, match="pip install"):
        open_lake("s3://bucket/lake")
