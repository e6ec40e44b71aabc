"""What a recorder holds resident while it works, by default and without lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.memory import BOUND, of_plain, of_recorder

pytestmark = pytest.mark.ebpf
_SLACK = 1.05  # other interpreters, other versions of numpy


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("--lines", "off")], ids=["lines", "no lines"])
@pytest.mark.mainly("lines")
def test_a_recorder_takes_a_few_times_what_its_libraries_take(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert of_recorder(tmp_path, words, 3.0) < BOUND * _SLACK * of_plain()
