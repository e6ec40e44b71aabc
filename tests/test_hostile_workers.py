"""Workers of a Dask cluster that answer what no gputop does: a sentence, and nothing of it in the lake."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.errors import GputopError
from gputop.fleet.explain_task import ExplainOutcome, Task
from gputop.fleet.lake.lake_tables import COLUMNS
from gputop.fleet.on_dask import DaskClient
from gputop.fleet.worker_answers import checked
from tests import made_lake

_ROW = made_lake.sessions(1)["sessions"][0]
_LISTED = {"recording": "r", "until_ns": 5, "duration_ns": 5}


def _outcome(table: str = "sessions", **changed: Any) -> ExplainOutcome:
    rows: dict[str, Any] = {**dict.fromkeys(COLUMNS, ()), table: ({**_ROW, **changed},)}
    return ExplainOutcome(rows, "0" * 64)


class _Client:
    """A cluster that has answered at once."""

    def __init__(self, told: Any) -> None:
        self._told = told

    def nthreads(self) -> dict[str, int]:
        return {"one": 1}

    def submit(self, *_words: Any, **_named: Any) -> Any:
        return self

    def cancel(self, _futures: Any) -> None:
        """Nothing runs."""

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self._told


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        [_outcome(), _outcome()],
        ["x"],
        [ExplainOutcome([], "x")],  # type: ignore[arg-type]
        [ExplainOutcome({}, 7)],  # type: ignore[arg-type]
        [ExplainOutcome({"sqlite_master": ()}, "x")],
        [ExplainOutcome({"sessions": 7}, "x")],  # type: ignore[dict-item]
        [ExplainOutcome({"sessions": ("x",)}, "x")],  # type: ignore[dict-item]
        [ExplainOutcome({"findings": ({"number": 1},)}, "x")],
        [ExplainOutcome({"problems": ({},) * (1 << 19)}, "x")],
        [_outcome(session_id=None)],
        [_outcome(duration_ns=1 << 63)],
        [_outcome(duration_ns=True)],
        [_outcome(duration_ns="1")],
        [_outcome(host="x" * 100_000)],
        [_outcome(host=b"x")],
        [_outcome(recording="r", until_ns=None)],
        [_outcome("findings", loss_ns=float("nan"))],
    ],
)
def test_an_answer_that_is_none_is_a_sentence(told: Any) -> None:
    engine = DaskClient(_Client(told), "here", print)
    with pytest.raises(GputopError, match="the workers of here cannot explain recordings"):
        list(engine.outcomes([Task("/data/1")], lambda: False))


def test_an_answer_is_taken_without_what_no_column_has() -> None:
    whole = _outcome(**_LISTED, more="x" * 100_000)
    found = checked([whole], 1)
    assert isinstance(found, list)
    assert dict(found[0].rows["sessions"][0]) == {**_ROW, **_LISTED}
    assert set(found[0].rows) == set(COLUMNS)
    assert len(checked("x" * 5000, 1)) == 1000
