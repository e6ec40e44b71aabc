"""The run beside the timed tests ends when it is told to, and says what the next run need not run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick import Decided

TESTS = """
from pathlib import Path

def test_first():
    assert {passes}

def test_second():
    Path({enough!r}).touch()

def test_third():
    raise AssertionError("nobody asked for it any more")
"""


@pytest.mark.parametrize(
    ("passes", "status"), [(True, pytest.ExitCode.OK), (False, pytest.ExitCode.TESTS_FAILED)]
)
@pytest.mark.slow
def test_it_ends_after_the_test_in_which_it_was_told_to_and_only_failures_fail_it(
    tmp_path: Path, *, passes: bool, status: pytest.ExitCode
) -> None:
    decided, suite = tmp_path / "decided", tmp_path / f"test_{passes}_of_quick.py"
    suite.write_text(TESTS.format(passes=passes, enough=f"{decided}.enough"))
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", f"--rootdir={tmp_path}", str(suite)]
    assert pytest.main(words, plugins=[Decided(decided)]) == status
    assert [name.rpartition("::")[2] for name in decided.read_text().split()] == ["test_first", "test_second"]
