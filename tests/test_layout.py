"""The check of the layout finds circles, files that are too long, and names that stand for two things."""

from __future__ import annotations

from pathlib import Path

from scripts.layout import MOST_LINES, MOST_MODULES, offences


def written(root: Path, **files: str) -> Path:
    """A tree of modules: ``a__b`` is gputop/a/b.py."""
    for name, text in files.items():
        path = root / "gputop" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_circle_is_found_also_within_a_package_and_for_types(tmp_path: Path) -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gputop.a.c import x\n"
    root = written(tmp_path, a__b=typed, a__c="from gputop.a import b\n", a__d="from gputop.a.b import y\n")
    assert list(offences(root)) == ["modules that import each other: gputop.a.b, gputop.a.c"]


def test_an_import_when_it_is_needed_closes_no_circle(tmp_path: Path) -> None:
    later = "def f() -> None:\n    from gputop.a.c import x\n"
    assert list(offences(written(tmp_path, a__b=later, a__c="from gputop.a import b\n"))) == []


def test_long_files_are_found_in_the_tests_too(tmp_path: Path) -> None:
    root = written(tmp_path, a__b="\n" * (MOST_LINES + 1))
    (root / "tests").mkdir()
    (root / "tests" / "test_x.py").write_text("\n" * (MOST_LINES + 1))
    assert len(list(offences(root))) == 2


def test_names_that_stand_for_two_things_and_large_folders_are_found(tmp_path: Path) -> None:
    root = written(tmp_path, a__b="class X:\n    pass\n", c__b="class X:\n    pass\n")
    assert [said.split(":")[0] for said in offences(root)] == [
        "file b.py is there 2 times",
        "class X is there 2 times",
    ]
    many = written(tmp_path / "more", **{f"a__m{number}": "" for number in range(MOST_MODULES + 1)})
    assert list(offences(many)) == ["gputop/a has 16 modules, more than 15"]


def test_names_that_are_no_nouns_of_the_field_are_found(tmp_path: Path) -> None:
    lines = (
        "class NotAsked: ...",  # 1
        "def told_sums(rows): return rows.take(0)",  # 2
        "def consume(given): x.tells = untold = given",  # 3, three of them
        "def take(giver, mistaken, stakes): askance = 1",
        "takes = 1",
    )
    root = written(tmp_path, a__b="\n".join(lines) + "\n")
    found = [sentence.split(" has the name ") for sentence in offences(root)]
    assert sorted((place, name.partition(":")[0]) for place, name in found) == [
        ("gputop/a/b.py:1", "NotAsked"),
        ("gputop/a/b.py:2", "told_sums"),
        ("gputop/a/b.py:3", "given"),
        ("gputop/a/b.py:3", "tells"),
        ("gputop/a/b.py:3", "untold"),
    ]


def test_private_names_of_the_product_are_found_in_tests(tmp_path: Path) -> None:
    root = written(tmp_path, a__b="_x = 1\n")
    lines = (
        "from gputop.a.b import _x",  # 1
        "from gputop.a import b",
        "b._x = 2",  # 3
        "monkeypatch.setattr(b, '_x', 3)",  # 4
        "monkeypatch.setattr('gputop.a.b._x', 3)",  # 5
        "class Mine:",
        "    def own(self): return self._x, os._exit, b.__name__",
    )
    (root / "tests").mkdir()
    (root / "tests" / "test_x.py").write_text("\n".join(lines) + "\n")
    assert [said.split()[0] for said in offences(root)] == [
        f"tests/test_x.py:{line}" for line in (1, 3, 4, 5)
    ]
