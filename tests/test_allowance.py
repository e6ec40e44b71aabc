"""What a file of a size may say in one pass, to the record and to the byte."""

from __future__ import annotations

import pytest

from replay.read_limits import Allowance

# however small it is, and beside that for each of its bytes
FREE_RECORDS, RECORDS = 262_144, 2
FREE_BYTES, BYTES = 8_388_608, 32


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_so_many_records_and_not_one_more(size: int) -> None:
    allowance = Allowance(size)
    most = FREE_RECORDS + RECORDS * size
    allowance.consume_records(most - 7)
    allowance.consume_records(7)
    with pytest.raises(ValueError, match="more records than a file of this size can hold"):
        allowance.consume_records(1)


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_so_many_bytes_and_not_one_more(size: int) -> None:
    allowance = Allowance(size)
    most = FREE_BYTES + BYTES * size
    allowance.consume_bytes(most - 7)
    allowance.consume_bytes(7)
    with pytest.raises(ValueError, match="larger samples than a file of this size can hold"):
        allowance.consume_bytes(1)


def test_records_and_bytes_are_counted_apart() -> None:
    allowance = Allowance(0)
    allowance.consume_records(FREE_RECORDS)
    allowance.consume_bytes(FREE_BYTES)
