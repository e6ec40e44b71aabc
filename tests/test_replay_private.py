"""A recording made to be shown to others does not say who else was on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.activities import activity_rows, activity_sample, unknown_rows
from probes.schema import ALIASED, ExitFlag, Kind, Records, empty
from probes.source import Item, Sample
from replay.private import Disguise, private_header
from replay.writer import SessionWriter
from tests.session_data import read, write


def records(*rows: tuple[Kind, int, int, str]) -> Records:
    """One record per (kind, pid, tid, name)."""
    made = empty(len(rows))
    for place, (kind, pid, tid, name) in enumerate(rows):
        made[place]["kind"], made[place]["pid"], made[place]["tid"] = kind, pid, tid
        if name:
            made.view(ALIASED)["comm"][place] = name.encode()
    return made


def comms(batch: Records) -> list[str]:
    """The names in the NAME records."""
    return [name.decode() for name in batch[batch["kind"] == Kind.NAME].view(ALIASED)["comm"]]


def test_names_of_strangers_are_replaced_and_stay_the_same() -> None:
    disguise = Disguise()
    batch = records(
        (Kind.JOIN, 10, 10, "train"),
        (Kind.NAME, 70, 71, "secret"),
        (Kind.NAME, 10, 12, "loader"),
        (Kind.NAME, 80, 80, "spy"),
        (Kind.NAME, 70, 72, "secret2"),
    )
    before = batch.tobytes()
    assert comms(disguise.records(batch)) == ["other-1", "loader", "other-2", "other-1"]
    assert batch.tobytes() == before, "the caller's array is not changed"
    gpus = {
        "gpus": [{"name": "H200", "processes": [{"pid": 80, "name": "/home/eve/spy", "mib": 5, "type": "C"}]}]
    }
    data = disguise.sample(Sample("gpus", 1, gpus)).data
    assert data["gpus"][0]["name"] == "H200"
    assert data["gpus"][0]["processes"] == [{"pid": 80, "name": "other-2", "mib": 5, "type": "C"}]


@pytest.mark.parametrize("kind", [Kind.FORK, Kind.EXEC, Kind.JOIN, Kind.CALL, Kind.OFFCPU])
def test_who_becomes_watched_later_has_its_name_from_then_on(kind: Kind) -> None:
    disguise = Disguise()
    assert comms(disguise.records(records((Kind.NAME, 70, 70, "late")))) == ["other-1"]
    disguise.records(records((kind, 70, 71, "")))
    assert comms(disguise.records(records((Kind.NAME, 70, 70, "late")))) == ["late"]
    assert disguise.sample(Sample("names", 1, {"71": "worker"})).data == {"71": "worker"}


@pytest.mark.parametrize("kind", [Kind.OCCUPANT, Kind.MIGRATE, Kind.NAME])
def test_to_have_a_cpu_is_not_to_be_watched(kind: Kind) -> None:
    disguise = Disguise()
    disguise.records(records((kind, 70, 70, "")))
    assert not disguise.is_watched(70)


def test_the_number_of_a_dead_process_does_not_unmask_its_heir() -> None:
    disguise = Disguise()
    ended = records((Kind.CALL, 10, 10, ""), (Kind.EXIT, 10, 10, ""))
    ended["flags"][1] = ExitFlag.GROUP_DEAD
    disguise.records(ended)
    assert disguise.sample(Sample("names", 1, {"10": "train"})).data == {"10": "train"}, "its last tick"
    disguise.sample(Sample("mark", 2, {}))
    assert comms(disguise.records(records((Kind.NAME, 10, 10, "heir")))) == ["other-1"]
    disguise.records(records((Kind.JOIN, 10, 10, "again")))
    disguise.sample(Sample("mark", 3, {}))
    assert disguise.is_watched(10)


def test_of_the_watched_the_name_is_kept_and_no_command_line_and_no_user() -> None:
    disguise = Disguise()
    data = {
        "processes": [
            {"pid": 1, "name": "train", "command": "python t.py", "user": "ann", "uid": 5, "watched": True},
            {"pid": 2, "name": "vim", "command": "vim diary", "user": "eve", "uid": 6, "watched": False},
        ]
    }
    cleaned = disguise.sample(Sample("process", 1, data)).data["processes"]
    assert cleaned[0] == {
        "pid": 1,
        "name": "train",
        "command": "",
        "user": "",
        "uid": None,
        "watched": True,
    }
    assert cleaned[1] == {
        "pid": 2,
        "name": "other-1",
        "command": "",
        "user": "",
        "uid": None,
        "watched": False,
    }
    one = disguise.sample(Sample("process", 1, {"pid": 3, "exe": "/x", "argv": ["a", "b"]})).data
    assert one == {"pid": 3, "exe": "", "argv": ["", ""]}


@pytest.mark.parametrize("shape", ["plain", "numbers", "nested", "list", "pairs", "columns", "tids"])
def test_names_by_thread_in_every_shape(shape: str) -> None:
    disguise = Disguise()
    disguise.records(records((Kind.CALL, 10, 11, ""), (Kind.NAME, 70, 71, "x")))
    shapes: dict[str, Any] = {
        "plain": {"11": "mine", "71": "secret"},
        "numbers": {11: "mine", 71: "secret"},
        "nested": {"names": {"11": "mine", "71": "secret"}},
        "list": {"names": [{"tid": 11, "name": "mine"}, {"tid": 71, "name": "secret"}]},
        "columns": {"tid": [11, 71], "pid": [10, 70], "name": ["mine", "secret"], "user": ["me", "secret"]},
        "tids": {"tid": [11, 71], "name": ["mine", "secret"], "more": ["secret"]},
        "pairs": {"10": {"11": "mine"}, "70": {"71": "secret", "99": "secret"}},
    }
    text = str(disguise.sample(Sample("names", 1, shapes[shape])).data)
    assert "secret" not in text
    assert "mine" in text
    assert "other-1" in text


def test_numbers_of_apis_and_gpus_are_not_those_of_processes() -> None:
    samples: dict[str, dict[str, Any]] = {
        "apis": {"rows": {17: {"name": "cudaLaunchKernel"}, "18": ["x", "runtime"]}},
        "gpus": {"gpus": {0: {"name": "H200"}, "1": {"name": "H200"}}},
        "mark": {"7": "seven"},
    }
    for kind, data in samples.items():
        assert Disguise().sample(Sample(kind, 1, data)).data == data
    users = {"processes": {7: {"name": "secret"}}}
    assert Disguise().sample(Sample("gpus", 1, users)).data == {"processes": {7: {"name": "other-1"}}}


def test_a_process_whose_end_only_a_sample_shows_is_forgotten() -> None:
    disguise = Disguise()
    disguise.sample(Sample("process", 1, {"pid": 10, "name": "train", "watched": True, "exited_ns": None}))
    assert disguise.is_watched(10)
    disguise.sample(Sample("process", 2, {"pid": 10, "watched": True, "exited_ns": 2}))
    disguise.sample(Sample("mark", 3, {}))
    assert not disguise.is_watched(10)


def test_the_header_does_not_say_who_and_where() -> None:
    header = {
        "tool": "gputop",
        "hostname": "node7",
        "user": "ann",
        "argv": ["gputop", "--secret"],
        "machine": {"host": "node7", "kernel": "6.18", "cpus": [{"node_name": "x", "mhz": 5}]},
        "gpus": [{"name": "H200"}],
    }
    assert private_header(header) == {
        "tool": "gputop",
        "machine": {"kernel": "6.18", "cpus": [{"mhz": 5}]},
        "gpus": [{"name": "H200"}],
        "private": True,
    }


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("attached to /home/ann/env/libcudart.so and /root/x", "attached to libcudart.so and x"),
        ("attached to /home/ann smith/my env/libcudart.so", "attached to libcudart.so"),
        ("/srv/a, b: c; 'd'/libcudart.so cannot be probed: no", "libcudart.so cannot be probed: no"),
        ("120 functions are traced", "120 functions are traced"),
    ],
)
def test_notes_do_not_say_whose_home_it_was(text: str, kept: str) -> None:
    assert Disguise().sample(Sample("note", 1, {"text": text})).data == {"text": kept}


def test_source_files_lose_their_folders_and_strangers_their_lines() -> None:
    disguise = Disguise()
    disguise.sample(Sample("process", 1, {"pid": 10, "watched": True}))
    own = [["/home/ann/env/lib/python3.11/site-packages/numpy/core.py", 5, "take"]]
    own += [["/home/ann/train.py", 42, "step"], ["<string>", 1, "f"]]
    own += [["/home/ann/libcublas.so.12", 0, "gemm+0x1"], ["/home/ann/train", 0, "step+0x2"], ["", 0, "…"]]
    frames = [own, [["/root/x.py", 7, "main"]]]
    data = {"pid": [10, 11], "stack": [1 << 62, 5], "frames": frames}
    cleaned = disguise.sample(Sample("frames", 2, data)).data
    # a library's file stays one: else its line would be mistaken for the program's own
    numpy = ["/lib/python3.11/site-packages/numpy/core.py", 5, "take"]
    native = [["/lib/libcublas.so.12", 0, "gemm+0x1"], ["train", 0, "step+0x2"], ["", 0, "…"]]
    told = [numpy, ["train.py", 42, "step"], ["<string>", 1, "f"], *native]
    assert cleaned["frames"] == [told, [["", 7, ""]]]
    assert cleaned["stack"] == [1 << 62, 5]


def test_no_secret_is_in_the_file(tmp_path: Path) -> None:
    items: list[Item] = [
        records((Kind.CALL, 10, 11, ""), (Kind.NAME, 70, 71, "secret"), (Kind.NAME, 10, 11, "mine")),
        Sample("process", 1, {"pid": 70, "name": "secret", "command": "secret"}),
        Sample("gpus", 1, {"gpus": [{"processes": [{"pid": 70, "name": "secret"}]}]}),
    ]
    path = tmp_path / "s"
    writer = SessionWriter(path, {"user": "secret"}, private=True)
    for item in items:
        writer.write(item)
    writer.close()
    assert b"secret" not in b"".join(
        msgpack.packb(item.data) if isinstance(item, Sample) else item.tobytes() for item in read(path)
    )
    assert b"secret" not in path.read_bytes()
    assert b"secret" in b"".join(
        msgpack.packb(item.data) if isinstance(item, Sample) else item.tobytes()
        for item in read(write(tmp_path / "open", items))
    )


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just("secret"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "x", "type", "7", 7, "tid"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def without_types(value: Any) -> Any:
    """Without the texts that say of what type something is, which are kept: of one, or a column of them."""
    if isinstance(value, dict):
        kept = {key: inner for key, inner in value.items() if key != "type" or not isinstance(inner, str)}
        return {
            key: [cell for cell in inner if not isinstance(cell, str)]
            if key == "type" and isinstance(inner, list)
            else without_types(inner)
            for key, inner in kept.items()
        }
    return [without_types(inner) for inner in value] if isinstance(value, list) else value


@given(st.dictionaries(st.sampled_from(["name", "command", "threads", "x"]), plain))
def test_nothing_a_stranger_says_about_itself_passes(data: dict[str, Any]) -> None:
    cleaned = Disguise().sample(Sample("gpus", 1, {"list": [{**data, "pid": 7}]})).data
    assert "secret" not in str(without_types(cleaned))


def test_open_files_keep_their_kind_and_lose_their_path() -> None:
    disguise = Disguise()
    disguise.records(records((Kind.JOIN, 10, 10, "train")))
    what = [
        "file:/home/eve/data.bin",
        "device:/dev/nvidia0",
        "device:/dev/mapper/eve",
        "pipe",
        "anon:memfd",
        "pipe",
    ]
    sample = Sample("files", 1, {"pid": [10] * 5 + [70], "fd": [3, 4, 5, 6, 7, 3], "what": what})
    data = disguise.sample(sample).data
    assert data["what"] == ["file", "device:/dev/nvidia0", "device", "pipe", "anon:memfd", ""]
    assert disguise.sample(Sample("files", 1, {"pid": [10], "what": 7})).data["what"] == []


def activity(pids: list[int]) -> Sample:
    """Two kernels, whose names and what they are stand in the texts that all rows share."""
    rows = unknown_rows(2)
    rows["pid"], rows["tid"], rows["name"], rows["detail"] = pids, pids, [1, 2], 3
    return activity_sample(rows, ["kernel", "gemm", "secret", "more"], 1)


def told_of(sample: Sample) -> list[tuple[str, ...]]:
    """What, name and detail of each row."""
    rows, texts = activity_rows(sample.data)
    return [tuple(texts[place] for place in row) for row in rows[["what", "name", "detail"]].tolist()]


def test_rows_that_share_texts_keep_those_of_the_watched_however_many_there_are() -> None:
    disguise = Disguise()
    disguise.records(records((Kind.CALL, 10, 10, "")))
    both = [("kernel", "gemm", "more"), ("kernel", "secret", "more")]
    assert told_of(disguise.sample(activity([10, 10]))) == both
    clean = disguise.sample(activity([10, 70]))
    assert told_of(clean) == [both[0], ("kernel", "", "")]
    assert "secret" not in clean.data["texts"]


def test_a_function_of_python_keeps_its_file_and_not_its_folders() -> None:
    rows = unknown_rows(1)
    rows["pid"] = 10
    names = ["python", "/home/eve/train.py(12): step", "/home/eve/x/site-packages/torch/a.py(3): f"]
    disguise = Disguise()
    disguise.records(records((Kind.CALL, 10, 10, "")))
    for name, clean in ((1, "train.py(12): step"), (2, "/site-packages/torch/a.py(3): f")):
        rows["name"] = name
        assert told_of(disguise.sample(activity_sample(rows, names, 1)))[0][1] == clean


@pytest.mark.parametrize("kind", ["note", "problem", "marker", "hole"])
def test_no_sentence_says_where_a_file_lies(kind: str) -> None:
    said = Disguise().sample(
        Sample(kind, 1, {"text": "slow: /home/eve/x/train.py", "why": "see /home/eve/y"})
    )
    assert said.data == {"text": "slow: train.py", "why": "see y"}


@pytest.mark.parametrize("apart", [0, 10_000_000])
def test_a_thread_number_that_is_used_again_is_that_of_its_last_process(apart: int) -> None:
    """Also of another machine in a merged recording, whose numbers are larger."""
    disguise, own, other = Disguise(), 10 + apart, 70 + apart
    batch = records(
        (Kind.CALL, own, own, ""), (Kind.CALL, own, 11 + apart, ""), (Kind.NAME, other, 11 + apart, "x")
    )
    disguise.records(batch)
    names = Sample("names", 1, {"tid": [own, 11 + apart], "name": ["mine", "secret"]})
    assert disguise.sample(names).data["name"] == ["mine", "other-1"]
