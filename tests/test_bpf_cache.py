"""Compiled programs are kept where only we can write; whatever is wrong there, they are compiled again."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from probes.ebpf.build import bpf_cache, compiled, compiler

KEY, DATA = "5eed", b"programs"
OTHER_USER = 65534


def flip(entry: Path) -> None:
    content = bytearray(entry.read_bytes())
    content[-1] ^= 1
    entry.write_bytes(content)


def cut(entry: Path) -> None:
    os.truncate(entry, entry.stat().st_size - 1)


def empty(entry: Path) -> None:
    os.truncate(entry, 0)


def take_another(entry: Path) -> None:
    bpf_cache.write(entry.parent, "another", DATA)
    (entry.parent / "another").rename(entry)


def open_to_all(path: Path) -> None:
    path.chmod(0o666 | path.stat().st_mode)


def open_to_group(path: Path) -> None:
    path.chmod(0o620)


def link_to(path: Path) -> None:
    real = path.rename(path.with_name("real"))
    path.symlink_to(real)


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, OTHER_USER, OTHER_USER)


def pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry, 0o600)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bpf_cache.write(tmp_path / "gputop" / "bpf", KEY, DATA)
    return tmp_path / "gputop" / "bpf"


def test_what_is_kept_is_read_under_its_key_and_nobody_else_can_read_it(folder: Path) -> None:
    assert bpf_cache.read(folder, KEY) == DATA
    assert bpf_cache.read(folder, "another") is None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [(entry.name, entry.stat().st_mode & 0o777) for entry in folder.iterdir()] == [(KEY, 0o600)]


@pytest.mark.parametrize(
    "spoil", [flip, cut, empty, take_another, open_to_all, open_to_group, link_to, give_away, pipe]
)
def test_an_entry_that_is_damaged_or_another_s_is_not_read_and_written_anew(
    folder: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(folder / KEY)
    assert bpf_cache.read(folder, KEY) is None
    bpf_cache.write(folder, KEY, DATA)
    assert bpf_cache.read(folder, KEY) == DATA


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (open_to_all, "is not used: it can be written by others"),
        (give_away, f"is not used: it belongs to user {OTHER_USER}"),
        (link_to, "cannot be used: Not a directory"),
    ],
)
def test_a_folder_that_is_not_ours_alone_is_neither_read_nor_written(
    folder: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(folder)
    with pytest.raises(bpf_cache.NoCacheError, match=f"{folder} {said}"):
        bpf_cache.read(folder, KEY)
    with pytest.raises(bpf_cache.NoCacheError, match=f"{folder} {said}"):
        bpf_cache.write(folder, "another", DATA)
    assert not (folder / "another").exists()


def test_those_that_were_used_last_are_kept(folder: Path) -> None:
    for age in range(bpf_cache.KEPT + 3):
        bpf_cache.write(folder, f"old-{age}", DATA)
        os.utime(folder / f"old-{age}", (1000 - age, 1000 - age))
    os.utime(folder / KEY, (0, 0))
    assert bpf_cache.read(folder, KEY) == DATA
    bpf_cache.write(folder, "new", DATA)
    kept = {f"old-{age}" for age in range(bpf_cache.KEPT - 2)}
    assert {entry.name for entry in folder.iterdir()} == kept | {"new", KEY}


@pytest.mark.parametrize(
    ("user", "environment", "expected"),
    [
        (0, {"HOME": "/home/ada", "XDG_CACHE_HOME": "/tmp/x"}, "/var/cache/gputop/bpf"),
        (1000, {"HOME": "/home/ada"}, "/home/ada/.cache/gputop/bpf"),
        (1000, {"HOME": "/home/ada", "XDG_CACHE_HOME": "/fast"}, "/fast/gputop/bpf"),
        (1000, {"HOME": "/home/ada", "XDG_CACHE_HOME": "here"}, "/home/ada/.cache/gputop/bpf"),
        (1000, {}, None),
    ],
)
def test_root_s_programs_are_not_in_anybody_s_home(
    user: int, environment: dict[str, str], expected: str | None
) -> None:
    assert bpf_cache.folder_of(user, environment) == (Path(expected) if expected else None)


# -- when the compiler is asked ------------------------------------------------------------------


class FakeCompiler:
    """Stands for bcc, which it says to be the file ``library``."""

    def __init__(self, library: Path) -> None:
        self.library = library
        library.write_text("bcc 0.26")
        self.texts: list[str] = []

    def __call__(self, text: str) -> bytes:
        self.texts.append(text)
        files = [compiler.identity(str(self.library))]
        return json.dumps({"maps": [], "programs": {"probe": "cHJvYmU="}, "files": files}).encode()


@pytest.fixture
def bcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    fake = FakeCompiler(tmp_path / "libbcc.so.0")
    monkeypatch.setattr(compiled, "compile_in_child", fake)
    return fake


def test_a_second_start_does_not_compile(folder: Path, bcc: FakeCompiler) -> None:
    first, second = (compiled.compiled("text", folder) for _ in range(2))
    assert bcc.texts == ["text"]
    assert first == second
    assert second.programs == {"probe": b"probe"}
    assert (first.cached, second.cached) == (False, True)
    assert (second.folder, second.problem) == (str(folder), "")


def test_another_text_kernel_or_compiler_has_programs_of_its_own(
    folder: Path, bcc: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled.compiled("text", folder)
    assert not compiled.compiled("texts", folder).cached
    bcc.library.write_text("bcc 0.27.0")
    assert not compiled.compiled("text", folder).cached
    assert compiled.compiled("text", folder).cached
    monkeypatch.setattr(platform, "release", lambda: "9.9.9")
    assert not compiled.compiled("text", folder).cached


def test_without_bcc_what_it_compiled_is_not_used(folder: Path, bcc: FakeCompiler) -> None:
    compiled.compiled("text", folder)
    os.rename(bcc.library, bcc.library.with_name("gone"))
    with pytest.raises(FileNotFoundError):
        compiled.compiled("text", folder)
    assert bcc.texts == ["text", "text"], "it is asked, and says what is missing"


def test_an_entry_that_cannot_be_replaced_is_reported(folder: Path, bcc: FakeCompiler) -> None:
    (folder / compiled.key_of("text")).mkdir()
    made = compiled.compiled("text", folder)
    assert (made.cached, made.problem) == (False, f"{folder} cannot be written: Is a directory")
    assert made.programs == {"probe": b"probe"}


def test_a_folder_that_cannot_be_used_is_reported_and_nothing_else_changes(
    folder: Path, bcc: FakeCompiler
) -> None:
    open_to_all(folder)
    made = [compiled.compiled("text", folder) for _ in range(2)]
    assert [one.problem for one in made] == [f"{folder} is not used: it can be written by others"] * 2
    assert made[0].programs == {"probe": b"probe"}
    assert bcc.texts == ["text", "text"]


@pytest.mark.parametrize(
    "said", ["{}", "[" * 100_000, '{"maps": [{}], "programs": {}, "files": []}', "null", "é"]
)
def test_an_answer_of_the_compiler_that_is_none_is_reported_and_not_kept(
    said: str, folder: Path, bcc: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "compile_in_child", lambda _text: said.encode("latin-1"))
    with pytest.raises(compiled.CompileError, match="bcc's answer cannot be read"):
        compiled.compiled("text", folder)
    monkeypatch.setattr(compiled, "compile_in_child", bcc)
    assert not compiled.compiled("text", folder).cached
