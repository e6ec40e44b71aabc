"""Redaction of what is redacted, private, cut or merged already, and of names that several have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import gputop
from gputop.files.redaction import redact
from probes.schema import ALIASED, Kind
from probes.source import CLIENT, FILES, MARKER, NAMES, PROCESS, Item, Sample
from replay.writer import SessionWriter
from tests import items
from tests.named_recording import HOST, USER, held, written
from tests.typed import typed


def file_of(path: Path, told: Sequence[Item], **header: object) -> Path:
    """A recording of a watched process 10, and what is reported beside."""
    writer = SessionWriter(path, {**items.HEADER, "machine": {"host": HOST}, **header})
    for item in (items.apis(), *told):
        writer.write(item)
    writer.write(items.call(items.START + 10_000, 5_000))
    writer.write(items.mark(1, items.START + items.SECOND))
    writer.close()
    return path


def redacted(path: Path) -> Path:
    """The copy."""
    copy = path.with_name(f"redacted-{path.name}")
    with gputop.open_session(path) as session:
        redact(session, str(copy))
    return copy


def samples(path: Path, kind: str) -> list[dict[str, object]]:
    """What those of a kind say."""
    with gputop.open_session(path) as session:
        return [item.data for item in session.items() if isinstance(item, Sample) and item.kind == kind]


def thread_names(path: Path) -> list[str]:
    """Those that records say."""
    with gputop.open_session(path) as session:
        records = [item for item in session.items() if not isinstance(item, Sample)]
    return [
        name.decode()
        for batch in records
        for name in batch[batch["kind"] == Kind.NAME].copy().view(ALIASED)["comm"].tolist()
    ]


def everything(path: Path) -> list[object]:
    """All that a recording says."""
    with gputop.open_session(path) as session:
        return [
            (item.kind, item.time_ns, item.data) if isinstance(item, Sample) else item.tolist()
            for item in session.items()
        ]


def test_what_is_redacted_already_stays_as_it_is(tmp_path: Path) -> None:
    once = redacted(written(tmp_path / "own.msgpack"))
    assert everything(redacted(once)) == everything(once)


def test_strangers_of_a_private_recording_keep_their_names_also_of_a_part_of_it(tmp_path: Path) -> None:
    """The part begins with another stranger than the whole did."""
    path = tmp_path / "private.msgpack"
    writer = SessionWriter(path, items.HEADER, private=True)
    for second, strangers in enumerate(({70: "weasel"}, {80: "badger", 70: "weasel"}), 1):
        at = items.START + second * items.SECOND
        writer.write(items.apis())
        for pid, name in strangers.items():
            writer.write(items.event(Kind.NAME, at - 500, pid=pid, tid=pid, comm=name.encode()))
        writer.write(items.call(at - 100, 50))
        writer.write(items.mark(second, at))
    writer.close()
    part = tmp_path / "part.msgpack"
    assert typed("cut", str(path), str(part), "--from", "1") == 0
    assert thread_names(part) == ["other-2", "other-1"]
    assert thread_names(redacted(part)) == ["other-2", "other-1"]


def test_a_real_name_never_gets_the_pseudonym_of_another(tmp_path: Path) -> None:
    """Of two recordings that were merged one was redacted before."""
    told = [
        items.process(10, user="user-1", command="command-1"),
        items.process(12, user=USER, command="python x.py --tag otter"),
    ]
    copy = redacted(file_of(tmp_path / "own.msgpack", told))
    assert [(one["user"], one["command"]) for one in samples(copy, PROCESS)] == [
        ("user-1", "command-1"),
        ("user-2", "command-2"),
    ]


def test_all_hosts_of_a_merged_recording_have_pseudonyms_also_in_sentences(tmp_path: Path) -> None:
    other = "falcon-node18"
    parts = [
        {"path": f"{USER}.msgpack", "host": host, "begin_ns": 0, "end_ns": 1, "later_ns": 0, "clock": "same"}
        for host in (HOST, other)
    ]
    told = [Sample(MARKER, items.START, {"text": f"{other} was slower than {HOST}"})]
    copy = redacted(file_of(tmp_path / "own.msgpack", told, merged={"parts": parts}))
    assert held(copy, (HOST, other, USER)) == []
    with gputop.open_session(copy) as session:
        assert [part["host"] for part in session.header["merged"]["parts"]] == ["host-1", "host-2"]
    assert samples(copy, MARKER) == [{"text": "host-2 was slower than host-1"}]


@pytest.mark.parametrize("told_first", [0, 1])
def test_a_name_that_a_stranger_shares_with_the_watched_stays_theirs(told_first: int, tmp_path: Path) -> None:
    stranger = Sample(CLIENT, items.START, {"pid": 80, "name": "python", "command": "python y"})
    own = [items.process(10, name="python"), items.names(items.START, {11: "python"})]
    told = [stranger, *own] if told_first else [*own, stranger]
    copy = redacted(file_of(tmp_path / "own.msgpack", told))
    assert samples(copy, CLIENT)[0]["name"] == "other-1"
    assert samples(copy, PROCESS)[0]["name"] == "python"
    assert samples(copy, NAMES)[0]["name"] == ["python"]


def test_what_is_replaced_elsewhere_is_replaced_in_names_of_threads(tmp_path: Path) -> None:
    """A script that is started by its own name is called like its file."""
    script = "nightjar_train"
    told = [
        items.process(10, name=script, command=f"/home/{USER}/{script} --now", user=USER),
        items.event(Kind.NAME, items.START + 5, pid=10, tid=10, comm=script.encode()),
        items.event(Kind.NAME, items.START + 6, pid=10, tid=11, comm=f"{USER}-io".encode()),
        items.event(Kind.NAME, items.START + 7, pid=10, tid=12, comm=b"\xffbad"),
    ]
    copy = redacted(file_of(tmp_path / "own.msgpack", told))
    with gputop.open_session(copy) as session:
        batches = [item for item in session.items() if not isinstance(item, Sample)]
    rows = [row for batch in batches for row in batch[batch["kind"] == Kind.NAME].view(ALIASED)["comm"]]
    assert rows == [b"file-1", b"user-1-io", b"\xffbad"]
    assert samples(copy, PROCESS)[0]["name"] == "file-1"
    assert held(copy, (script, USER)) == []


def test_a_stranger_that_is_called_like_a_word_of_gputop_is_no_reason_to_refuse(tmp_path: Path) -> None:
    told = [
        items.process(10, name="python"),
        Sample(CLIENT, items.START, {"pid": 80, "name": "pipe"}),
        Sample(FILES, items.START, {"pid": [10], "fd": [3], "what": ["pipe"]}),
    ]
    copy = redacted(file_of(tmp_path / "own.msgpack", told))
    assert samples(copy, FILES)[0]["what"] == ["pipe"]
    assert samples(copy, CLIENT)[0]["name"] == "other-1"
