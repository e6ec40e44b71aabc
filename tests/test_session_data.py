"""The data for the tests of session files is what it claims to be."""

from __future__ import annotations

import numpy as np

from probes.schema import Kind
from tests.session_data import realistic


def test_the_data_is_what_it_claims_to_be() -> None:
    records = realistic(5000)
    shares = np.bincount(records["kind"]) / len(records)
    assert 0.09 < shares[Kind.OFFCPU] < 0.11
    seconds = int(records["t_end"][-1] - records["t_end"][0]) / 1e9
    assert 18_000 < 5000 / seconds < 22_000
