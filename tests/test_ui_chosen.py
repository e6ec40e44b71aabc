"""What is listed is what was chosen: filters and their flags, groups, searches, columns and their dialog."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual import events

from gputop.analysis.answer.report import Gain, Range
from gputop.commands.completion import SHELLS
from gputop.commands.screen.text import render_text
from gputop.engine.calls.launch_counts import KernelRow
from gputop.engine.frame import Frame
from gputop.ui.kept import NotKeptError, keep_columns, keep_group
from gputop.ui.model.config import GROUPS as GROUP_KEYS
from gputop.ui.model.config import Preferences, load
from gputop.ui.model.gpus.gpu_list import no_gpu_sentence
from gputop.ui.model.gpus.only_gpus import explained_of_gpus, of_gpus, report_of_gpus
from gputop.ui.model.listing.filter import narrowed, parse_filter
from gputop.ui.model.listing.listing import GROUPS
from tests import fake_frames as fake
from tests import fake_reports as why
from tests import inside
from tests.screen_support import Shown, running, text_of, until
from tests.waiting import HANGS_S

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SLURM = (("job_kind", "slurm"), ("job_id", "4711"), ("job_step", "0"))
RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "numpy-sync.msgpack"


def job(gpus: int = 8) -> Frame:
    """Six processes: two in a container, three of a job with ranks, one of another user."""
    frame = fake.frame(processes=6, gpus=gpus)
    changes: list[dict[str, object]] = [
        {"container": "docker 0123456789ab"},
        {"container": "docker 0123456789ab", "user": "bob"},
        {
            "belongs": (
                ("job_kind", "slurm"),
                ("job_id", "4711"),
                ("job_step", "0"),
                ("rank", 0),
                ("world_size", 3),
            )
        },
        {
            "belongs": (
                ("job_kind", "slurm"),
                ("job_id", "4711"),
                ("job_step", "0"),
                ("rank", 1),
                ("world_size", 3),
            )
        },
        {
            "belongs": (
                ("job_kind", "slurm"),
                ("job_id", "4711"),
                ("job_step", "0"),
                ("rank", 2),
                ("world_size", 3),
            )
        },
        {"belongs": (("pod", "train-7f"), ("namespace", "ml"), ("pod_container", "trainer"))},
    ]
    rows = [replace(row, **change) for row, change in zip(frame.processes, changes, strict=True)]  # type: ignore[arg-type]
    return replace(frame, processes=tuple(rows))


PIDS = [row.pid for row in job().processes]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("container:0123", {0, 1}),
        ("container:trainer", {5}),
        ("container:docker user:bob", {1}),
        ("pod:train", {5}),
        ("namespace:ml", {5}),
        ("job:4711", {2, 3, 4}),
        ("job:4711 rank:0,2", {2, 4}),
        ("train-7f", {5}),
        ("4711.0", {2, 3, 4}),
        ('command:"train.py --rank 3"', {3}),
        ('"--rank 4', {4}),
        ("rank:7", set()),
    ],
)
def test_a_filter_knows_container_pod_job_and_rank(text: str, places: set[int]) -> None:
    shown = narrowed(job(), parse_filter(text))
    assert {PIDS.index(row.pid) for row in shown.processes} == places


def test_gpus_that_are_not_chosen_are_in_no_part_of_the_frame() -> None:
    shown = narrowed(job(), parse_filter(""), {0, 3})
    assert [gpu.index for gpu in shown.gpus] == [0, 3]
    assert {index for row in shown.processes for index in row.gpus or ()} == {0, 3}
    assert {storm.pid for storm in shown.storms} <= {row.pid for row in shown.processes}


@pytest.mark.parametrize(
    ("chosen", "said", "key"),
    [
        ({"gpus": frozenset({9})}, "No process matches --gpu 9 (6 hidden).", "without --gpu"),
        ({"filter": "user:zoe"}, "No process matches filter user:zoe (6 hidden).", "[Esc] all"),
        (
            {"filter": "user:zoe", "gpus": frozenset({0})},
            "matches filter user:zoe and --gpu 0 (6 hidden).",
            "[Esc] all of these GPUs",
        ),
    ],
)
async def test_a_filter_that_hides_all_is_named_with_the_key_that_clears_it(
    chosen: dict[str, Any], said: str, key: str
) -> None:
    async with running(job(), (120, 40), **chosen) as (app, _feed, _pilot):
        shown = " ".join(text_of(app).split())
        assert said in shown
        assert key in shown
        assert "Waiting for a process" not in shown
        assert "no calls" in shown


def test_a_frame_as_text_names_the_flags_that_hide_all() -> None:
    frame = job()
    shown = narrowed(frame, parse_filter("user:zoe"))
    text = render_text(shown, width=100, hidden=len(frame.processes) - len(shown.processes))
    assert "No process matches (6 hidden): leave out --gpu, --user, --name or --container." in text
    assert "Waiting" not in text


def test_findings_of_processes_on_other_gpus_are_left_out_and_the_verdict_keeps_its_own() -> None:
    frame = job()
    here, there = why.finding(), replace(why.finding("C13", 900), pid=PIDS[1])
    gpus = tuple(why.GpuSpan(f"GPU {index}", why.S, why.account().idle, why.account()) for index in range(8))
    told = why.explained(there, here, gpus=gpus, diagnosis=replace(why.diagnosis(), lead=1))
    told = replace(told, lanes=why.lanes(gpus=8))
    shown = explained_of_gpus(told, frame, {0})
    assert shown.report is not None
    assert shown.lanes is not None
    assert [gpu.label for gpu in shown.report.gpus] == ["GPU 0"]
    assert [lane.index for lane in shown.lanes.gpus] == [0]
    assert [one.cause for one in shown.report.findings] == ["C02"]
    assert shown.report.diagnosis is not None
    assert shown.report.diagnosis.lead == 0
    assert explained_of_gpus(told, frame, ()) is told
    other = explained_of_gpus(told, frame, {1}).report
    assert other is not None
    assert other.diagnosis is None, "its finding is elsewhere"


@pytest.mark.parametrize("shares", [((0, 0.25), (1, 0.75)), ((1, 1.0),), ()])
def test_a_finding_on_several_gpus_costs_those_shown_their_part(
    shares: tuple[tuple[int, float], ...],
) -> None:
    """One process on two GPUs: `GPU 0 was idle for 92 % of 5.8s, 8.0s of it because of this` was false."""
    frame = fake.frame(gpus=2)
    loss = Range(4 * why.S, 9 * why.S, 8 * why.S)
    one = replace(why.finding(), loss=loss, gpu_shares=shares, gain=Gain(9 * why.S, "", why.S))
    idle = Range(4 * why.S, 6 * why.S, 5 * why.S)
    account = replace(why.account(), span_ns=10 * why.S, bounds=idle)
    gpus = tuple(why.GpuSpan(f"GPU {index}", 10 * why.S, idle, account) for index in range(2))
    told = why.explained(one, gpus=gpus, span_ns=20 * why.S, diagnosis=why.diagnosis())
    assert told.report is not None
    report = report_of_gpus(told.report, frame, {0})
    part = dict(shares).get(0, 0.0) if shares else 1.0
    if not part:
        assert not report.findings, "nothing of it is on this GPU"
        return
    (found,) = report.findings
    assert found.loss == Range(*(int(part * ns) for ns in (4 * why.S, 9 * why.S, 8 * why.S)))
    assert found.gain.ns == max(account.idle.upper, account.idle.estimate or 0) + why.S, "and its work"
    assert not any(text.startswith("accounts for") for text in report.diagnosis.evidence)  # type: ignore[union-attr]
    whole = report_of_gpus(told.report, frame, {0, 1}).findings[0]
    assert whole.loss == loss


def test_the_verdict_of_some_gpus_is_about_these() -> None:
    frame = job()
    accounts = [why.account(1000 * index) for index in range(1, 9)]
    gpus = tuple(why.GpuSpan(f"GPU {at}", 10 * why.S, one.idle, one) for at, one in enumerate(accounts))
    told = why.explained(gpus=gpus, span_ns=80 * why.S)
    assert told.report is not None
    report = report_of_gpus(told.report, frame, {2})
    assert report.verdict.startswith("GPU 2 was idle for 30 % of 10.0s")
    assert report.span_ns == 10 * why.S
    assert report_of_gpus(told.report, frame, range(8)).verdict == told.report.verdict


def test_idle_time_that_no_chain_explains_is_not_healthy_on_some_gpus_either() -> None:
    accounts = [why.account(1000 * index) for index in (1, 5)]
    gpus = tuple(why.GpuSpan(f"GPU {at}", 10 * why.S, one.idle, one) for at, one in enumerate(accounts))
    told = why.explained(gpus=gpus, span_ns=20 * why.S, unexplained_ns=5 * why.S)
    assert told.report is not None
    report = report_of_gpus(told.report, job(), {1})
    assert "the chain is not known" in report.verdict
    assert report.unexplained_ns == report.idle.lower == accounts[1].idle.lower
    assert "no recurring stall" in report_of_gpus(replace(told.report, unexplained_ns=0), job(), {1}).verdict


def test_a_gpu_that_the_machine_does_not_have_is_named_and_those_that_it_has() -> None:
    frame = fake.frame(gpus=2)
    shown = of_gpus(frame, {1, 9})
    assert shown.problems[0] == "--gpu 9: no such GPU, this machine has 0, 1"
    assert [gpu.index for gpu in shown.gpus] == [1]
    assert no_gpu_sentence(of_gpus(frame, {9})).startswith(
        "No GPU is shown: no such GPU, this machine has 0, 1."
    )
    assert of_gpus(frame, {0, 1}).problems == frame.problems
    assert of_gpus(fake.frame(gpus=0), {9}).problems == fake.frame(gpus=0).problems, (
        "nothing is known of its GPUs"
    )


@pytest.mark.slow
def test_flags_narrow_a_recording_that_is_printed() -> None:
    every = json.loads(inside.run("replay", str(RECORDING), "--once", "--json").stdout)
    assert every["processes"]
    name = every["processes"][0]["name"]
    flags = (("--name", name), ("--user", every["processes"][0]["user"] or "root"), ("--gpu", "0"))
    for flag, value in flags:
        some = json.loads(inside.run("replay", str(RECORDING), "--once", "--json", flag, value).stdout)
        assert some["processes"] == every["processes"]
    none = json.loads(inside.run("replay", str(RECORDING), "--once", "--json", "--name", "no-such").stdout)
    assert none["processes"] == []
    elsewhere = json.loads(inside.run("replay", str(RECORDING), "--once", "--json", "--gpu", "7").stdout)
    assert elsewhere["gpus"] == elsewhere["processes"] == []
    wrong = inside.run("replay", str(RECORDING), "--once", "--gpu", "all")
    assert wrong.returncode == 2
    assert "not a GPU index" in wrong.stderr


@pytest.mark.slow
def test_the_screen_begins_with_the_filter_of_its_flags() -> None:
    screen = Shown(job(), filter="job:4711", gpus=frozenset({2, 3}))
    assert {row.pid for row in screen.view.processes.rows} == {PIDS[2], PIDS[3]}
    text = screen.text(120, 40)
    assert "--gpu 2,3" in text
    assert "filter job:4711 [/]" in text
    assert screen.view.frame is not None
    assert [gpu.index for gpu in screen.view.frame.gpus] == [2, 3]


# -- groups ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_are_grouped_by_what_some_of_them_have_with_sums() -> None:
    screen = Shown(job(), "G")
    assert "by user [G]" in screen.text(120, 40)
    screen.press("G")
    assert "by container [G]" in screen.text(120, 40)
    first = next(row for row in screen.view.processes.rows if row.pid == PIDS[0])
    both = job().processes[:2]
    assert first.calls_per_second == sum(row.calls_per_second for row in both)
    assert first.rss_bytes == sum(row.rss_bytes or 0 for row in both)
    assert first.sm_percent == sum(row.sm_percent or 0 for row in both)
    assert len(screen.view.processes.rows) == 5, "who is in no container stands for himself"
    assert screen.view.listing.tree.leads[PIDS[0]] == "+1 0123456789ab "
    assert "+1 01234567" in screen.text(250, 70)
    screen.press("G", "G")
    assert "by job [G]" in screen.text(120, 40)
    assert len(screen.view.processes.rows) == 4
    screen.press("G")
    assert "by rank [G]" in screen.text(120, 40)
    screen.press("G")
    assert "by gpu [G]" in screen.text(120, 40)
    screen.press("G")
    assert "[G]" not in screen.text(120, 40)
    assert len(screen.view.processes.rows) == 6


@pytest.mark.slow
def test_what_no_process_has_is_no_group() -> None:
    screen = Shown(fake.frame(), "G", "G")
    assert "by gpu [G]" in screen.text(120, 40), "of user, container, pod and job they have the user alone"


@pytest.mark.parametrize("key", GROUPS)
def test_a_group_can_be_preferred(key: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'group = "{key}"\ntree = true\n')
    path.chmod(0o600)
    made = load(path, {}, ()) if os.geteuid() else replace(Preferences(), group=key, tree=True)
    with Shown(job(), preferences=made) as screen:
        assert f"by {key} [G]" in screen.text(120, 40)
    assert tuple(GROUPS) == GROUP_KEYS


def test_ranks_of_one_number_are_a_group_of_their_job() -> None:
    labels = {GROUPS["rank"](row) for row in job().processes}
    assert labels == {"", "4711.0 0/3", "4711.0 1/3", "4711.0 2/3"}


@pytest.mark.slow
@pytest.mark.parametrize("key", list(GROUPS))
def test_columns_of_whose_a_process_is_are_there_while_one_has_them(key: str) -> None:
    text = Shown(job()).text(250, 70)
    assert all(title in text for title in ("RANK", "JOB", "POD", "CONTAINER", "0/3", "4711.0", "train-7f"))
    plain = Shown(fake.frame()).text(250, 70)
    assert not any(title in plain for title in ("RANK", "JOB ", "POD ", "CONTAINER"))


# -- search ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_calls_are_searched_from_the_first_key_on_and_escape_drops_it() -> None:
    screen = Shown(fake.frame(), "down", "enter", "slash", *"launch")
    assert {row.api for row in screen.view.calls.rows} == {"cudaLaunchKernel", "cuLaunchKernel"}
    screen.press("enter")
    assert "search launch [/]" in screen.text(120, 40)
    screen.press("slash", *"zzz", "enter")
    assert screen.view.calls.rows == []
    assert "No row matches launchzzz (7 hidden)." in screen.text(120, 40)
    screen.press("escape")
    assert len(screen.view.calls.rows) == 7
    screen.press("slash", *"free", "escape")
    assert len(screen.view.calls.rows) == 7


async def test_a_search_typed_right_behind_a_change_of_the_tab_is_of_the_new_tab() -> None:
    async with running(fake.frame()) as (app, _, pilot):
        await pilot.press("down", "enter")
        for key, character in (("right", None), ("slash", "/")):  # as they come from a busy terminal
            app.post_message(events.Key(key, character))
        await until(pilot, lambda: "search Calls" in text_of(app) or "search Lines" in text_of(app), "it")
        assert "search Lines" in text_of(app)


@pytest.mark.slow
def test_kernels_are_searched_also_where_their_names_are_cut() -> None:
    names = ("void gemm<float, 128, 64>(float*)", "layer_norm" + "_very" * 30 + "_long_tail", "softmax")
    kernels = tuple(
        KernelRow(name, "/usr/lib/libtorch.so", place, 100 - place) for place, name in enumerate(names)
    )
    frame = fake.frame(processes=1)
    frame = replace(frame, processes=(replace(frame.processes[0], kernels=kernels),))
    screen = Shown(frame, "down", "enter", *["tab"] * 4)
    assert "softmax" in screen.text(100, 40)
    screen.press("slash", *"long_tail", "enter")
    text = screen.text(100, 40)
    assert "layer_norm" in text
    assert "softmax" not in text
    screen.press("escape")
    assert "softmax" in screen.text(100, 40)


@pytest.mark.slow
def test_help_is_searched_and_escape_leads_back_in_two_steps() -> None:
    screen = Shown(fake.frame(), "question_mark", "slash", *"resident", "enter")
    text = screen.text(100, 40)
    assert "RSS" in text
    assert "search resident [/]" in text
    assert "CALLS/s" not in text
    screen.press("escape")
    assert "CALLS/s" in screen.text(100, 200)
    screen.press("escape")
    assert "Processes" in screen.text(100, 40)


# -- columns --------------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that root trusts."""
    base = Path.home() if os.geteuid() == 0 else Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(dir=base, prefix=".gputop-test-") as name:
        yield Path(name)


def read(path: Path) -> Preferences:
    """What the screen reads of it."""
    from gputop.commands.screen.looks import known_columns
    from gputop.ui.model.view import TOGGLED

    return load(path, known_columns(), TOGGLED)


@pytest.mark.slow
def test_the_dialog_chooses_orders_tries_at_once_and_keeps(folder: Path) -> None:
    path = folder / "gputop" / "config.toml"
    screen = Shown(fake.frame(), "C", "down", "space", preferences=Preferences(path=str(path)))
    assert "name" not in screen.view.processes.picked_columns, "tried at once"
    assert "[ ] NAME" in screen.text(80, 24)
    assert "Esc: cancel" in screen.text(80, 24)
    screen.press("down", "less_than_sign", "less_than_sign", "enter")
    made = read(path)
    assert not made.problems
    keys = made.columns["processes"]
    assert "name" not in keys
    assert keys[0] == "user"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert screen.view.processes.picked_columns == keys
    again = Shown(fake.frame(), preferences=made)
    assert again.view.processes.picked_columns == keys
    again.press("C", "d", "enter")
    assert read(path).columns == {}
    assert again.view.processes.picked_columns == ()


@pytest.mark.slow
def test_escape_in_the_dialog_leaves_everything_as_it_was(folder: Path) -> None:
    path = folder / "config.toml"
    screen = Shown(fake.frame(), "C", "down", "space", "escape", preferences=Preferences(path=str(path)))
    assert screen.view.processes.picked_columns == ()
    assert not path.exists()


HARD = (
    "",
    "rate = 2",
    'theme = "light" # mine\n\n[columns]\n# the calls\ncalls = ["api"]\n\n[other]\nx = 1\n',
    '[columns]\nprocesses = [\n  "pid",\n  "name", # two\n]\ncalls = ["api"]\n',
    '[ columns ] # here\n"processes" = ["pid"]',
    '[columns]\nthreads = ["tid"]\nprocesses=["pid"]\n',
)


@pytest.mark.parametrize("text", HARD)
def test_keeping_columns_changes_nothing_else_of_the_file(text: str, folder: Path) -> None:
    path = folder / "config.toml"
    path.write_text(text)
    before = tomllib.loads(text)
    keep_columns(path, "processes", ["pid", "run"])
    after = tomllib.loads(path.read_text())
    assert after["columns"]["processes"] == ["pid", "run"]
    for one in (before, after):
        one.get("columns", {}).pop("processes", None)
    assert {**before, "columns": before.get("columns", {})} == {**after, "columns": after.get("columns", {})}
    assert all(line in path.read_text() for line in text.splitlines() if line.lstrip().startswith("#"))
    keep_columns(path, "processes", [])
    assert "processes" not in tomllib.loads(path.read_text()).get("columns", {})


@pytest.mark.parametrize("text", ['columns = {calls = ["api"]}\n', 'columns.calls = ["api"]\n', "not toml"])
def test_a_form_that_cannot_be_changed_is_left_alone_with_the_line_to_write(text: str, folder: Path) -> None:
    path = folder / "config.toml"
    path.write_text(text)
    with pytest.raises(NotKeptError, match=r'processes = \["pid"\]'):
        keep_columns(path, "processes", ["pid"])
    assert path.read_text() == text


def test_a_link_to_the_file_stays_a_link(folder: Path) -> None:
    (folder / "mine").write_text("rate = 2\n")
    (folder / "config.toml").symlink_to(folder / "mine")
    if os.geteuid() == 0:
        with pytest.raises(NotKeptError, match="root's alone"):
            keep_columns(folder / "config.toml", "processes", ["pid"])
        return
    keep_columns(folder / "config.toml", "processes", ["pid"])
    assert (folder / "config.toml").is_symlink()
    assert "pid" in (folder / "mine").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="whose folder it is matters to root")
def test_root_writes_nothing_where_others_can(folder: Path) -> None:
    (folder / "theirs").mkdir()
    os.chown(folder / "theirs", 65534, 65534)
    with pytest.raises(NotKeptError, match="root's alone"):
        keep_columns(folder / "theirs" / "config.toml", "processes", ["pid"])
    assert list((folder / "theirs").iterdir()) == []


def test_a_browser_changes_no_preferences_of_who_serves_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.ui.kept.in_browser", lambda: True)
    with pytest.raises(NotKeptError, match="in a terminal"):
        keep_columns(folder / "config.toml", "processes", ["pid"])
    assert list(folder.iterdir()) == []


# -- the shell ------------------------------------------------------------------------------------


def test_fish_completes_commands_flags_and_choices(tmp_path: Path) -> None:
    script = inside.run("--print-completion", "fish").stdout
    assert "fish" in SHELLS
    for word in ("-a 'explain'", "-l container", "-l gpu", "-a 'all slow off'"):
        assert word in script
    fish = shutil.which("fish")
    if fish is None:
        return
    path = tmp_path / "gputop.fish"
    path.write_text(script)

    def completed(line: str) -> set[str]:
        ask = f"source {path}; complete -C '{line}'"
        done = subprocess.run(
            [fish, "--no-config", "-c", ask], capture_output=True, text=True, timeout=HANGS_S, check=True,
            env=os.environ | {"HOME": str(tmp_path)},
        )  # fmt: skip
        assert not done.stderr
        return {one.partition("\t")[0] for one in done.stdout.splitlines()}

    assert {"replay", "report", "record"} <= completed("gputop re")
    assert "--container" in completed("gputop replay --c")
    assert completed("gputop --stacks s") == {"slow"}
    assert "--container" not in completed("gputop stats --c")
    actions = {"ingest", "overview", "findings", "stragglers", "screen", "report", "sql"}
    assert actions <= completed("gputop fleet ")
    assert completed("gputop fleet ove") == {"overview"}
    assert "overview" not in completed("gputop report o")
    assert completed("gputop fleet ingest --int") == {"--into"}
    assert not completed("gputop fleet overview --int")
    assert "--job" in completed("gputop fleet report --j")
    assert not completed("gputop report --j"), "these are other flags"


@pytest.mark.parametrize("text", ["", "rate = 2", 'group = "pod" # mine\nrate = 2\n', *HARD])
def test_what_processes_are_grouped_by_is_kept_and_changes_nothing_else(text: str, folder: Path) -> None:
    path = folder / "config.toml"
    path.write_text(text)
    for group in ("user", "container"):
        keep_group(path, group)
        assert tomllib.loads(path.read_text()) == {**tomllib.loads(text), "group": group}
    keep_group(path, "")
    assert tomllib.loads(path.read_text()) == {k: v for k, v in tomllib.loads(text).items() if k != "group"}


def test_a_group_in_another_form_is_left_alone(folder: Path) -> None:
    path = folder / "config.toml"
    path.write_text('group = """pod"""\n')
    with pytest.raises(NotKeptError, match='group = "user"'):
        keep_group(path, "user")
    assert path.read_text() == 'group = """pod"""\n'


@pytest.mark.slow
async def test_the_key_keeps_the_group_for_the_next_start(folder: Path) -> None:
    path = folder / "config.toml"
    async with running(fake.frame(), preferences=Preferences(path=str(path))) as (_, _, pilot):
        await pilot.press("G")
        await pilot.pause()
        assert tomllib.loads(path.read_text()) == {"group": "user"}
        for _ in range(6):
            await pilot.press("G")
        await pilot.pause()
    assert load(path, {}, ("gpus",)).problems == ()


def test_what_cannot_be_kept_is_reported_in_words_without_names_of_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (tmp_path / "gputop").write_text("a file, where the folder is to be")
    path = tmp_path / "gputop" / "config.toml"
    with pytest.raises(NotKeptError) as failed:
        keep_group(path, "user")
    said = str(failed.value)
    assert "Errno" not in said
    assert said.startswith("not saved: ")
    assert said.endswith(f'to save it, write  group = "user"  in {path}')
    assert said.count(str(tmp_path)) == 1
