"""Input that the submitting thread prepares (C12): of workers it is reported only where a loader may be."""

from __future__ import annotations

import pytest

from probes.source import FRAMES, PLACES, Sample
from tests.items import START
from tests.programs import COPY_ASYNC, H2D, LAUNCH, MAIN, SYNC, US, started

TORCH = "/usr/lib/python3.11/site-packages/torch"
STEP = 12_000  # us: 4 ms until the wait returns, 8 ms of preparing
CALLS, MET = (1 << 62 | number for number in (1, 2))


@pytest.mark.parametrize(
    ("files", "pytorch", "title"),
    [
        (("/app/data.py",), True, "input prepared on the main thread"),
        (("/app/data.py",), False, "input prepared on the main thread"),
        (
            ("/app/data.py", f"{TORCH}/utils/data/_utils/fetch.py"),
            True,
            "input prepared on the main thread (`num_workers=0`)",
        ),
    ],
    ids=["no loader was met", "no PyTorch was met", "met within the loader"],
)
def test_a_program_without_a_loader_is_not_told_of_its_workers(
    files: tuple[str, ...], pytorch: bool, title: str
) -> None:
    made = started()
    for begin in range(0, 30 * STEP, STEP):
        made.call(COPY_ASYNC, begin + 10, begin + 15, kind=H2D, bytes=1 << 20, stack=CALLS)
        made.call(LAUNCH, begin + 30, begin + 35, stack=CALLS)
        made.call(SYNC, begin + 50, begin + 4000)
    made.call(COPY_ASYNC, 30 * STEP, 30 * STEP + 5, kind=H2D, bytes=1 << 20)
    calls = [[f"{TORCH}/nn/modules/module.py", 9, "f"]] if pytorch else []
    frames = [[*calls, ["/app/train.py", 8, "main"]], [[file, 3, "f"] for file in files]]
    told = {"pid": [MAIN, MAIN], "stack": [CALLS, MET], "frames": frames}
    times = [START + (begin + 8000) * US for begin in range(0, 30 * STEP, STEP)]
    places = {"time": times, "tid": [MAIN] * len(times), "stack": [MET] * len(times)}
    made.samples += [Sample(FRAMES, START, told), Sample(PLACES, START, places)]
    (found,) = (one for one in made.report().findings if one.cause == "C12")
    assert found.title == title
    assert ("__getitems__" in " ".join(found.advice)) == ("num_workers" in title)
