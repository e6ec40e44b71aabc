"""Programs of users that gputop got wrong: they lie beside the project, and may be missing."""

from __future__ import annotations

from pathlib import Path

from tests.stories.catalogue import Pair, Story

TITLE = "Programs from reports of users"
FOLDER = Path(__file__).resolve().parents[3] / "shared" / "programs"
_TORCH, _PYTHON, _NUMBA = ("torch", "triton", "python"), ("python",), ("numba", "python")


def _story(name: str, command: str, classes: str, what: str = "", end: str = "", **more: object) -> Story:
    settled = {"folder": FOLDER, "loads": _TORCH, "needs_wheel": True} | more
    return Story(name, command, tuple(classes.split()), what=what, end=end, **settled)  # type: ignore[arg-type]


def _both(number: str, file: str, classes: str, what: str, end: str, **more: object) -> tuple[Story, Story]:
    after = {key: value for key, value in more.items() if key not in ("hint", "fix")}
    return (
        _story(f"{number}-before", f"{file} before", classes, what, end, **more),
        _story(f"{number}-after", f"{file} after", "", **after),
    )


_PLAIN = {"python": "plain", "loads": _PYTHON, "clocked": False, "needs_wheel": False}
_SLOW_LINK = {"SIMGPU_NCCL_GBPS": "8", "SIMGPU_DEVICES": "2"}

STORIES = {
    story.name: story
    for story in (
        *_both("01", "01_anomaly_mode.py", "sync", "anomaly", r"loss\.backward", fix="set_detect_anomaly"),
        *_both("04", "04_ema_loop.py", "launch", "", "update_ema()", fix="foreach"),
        *_both(
            "06", "06_subprocess_envs.py", "host", "waits for .*process", r"pipe\.recv\(\) | serve() | step()"
        ),
        *_both("07", "07_sleep_between_epochs.py", "host", "sleep", r"time\.sleep"),
        *_both(
            "08",
            "08_numba_host_arrays.py",
            "copy sync",
            "host arrays|pageable|host memory",
            "relax()",
            python="numba",
            loads=_NUMBA,
        ),
        *_both(
            "10",
            "10_workers_every_epoch.py",
            "input",
            "started|born|anew",
            "for batch in",
            fix="persistent_workers",
        ),
        *_both("11", "11_gil_request_threads.py", "cpu host", "GIL", "prepare()"),
        *_both(
            "16",
            "16_ddp_accumulate.py",
            "communication",
            "all-reduce|collective",
            r"\.backward\(\)",
            fix="no_sync",
            settings=_SLOW_LINK,
        ),
        _story("20-front", "20_server_front.py front", "host", "process", "tokenize()", **_PLAIN),
        _story("20-decode", "20_server_front.py decode", "host", "", "detokenize()", **_PLAIN),
        _story("21", "21_spin_on_shared_memory.py", "host", "poll", "schedule()", hint=True, **_PLAIN),
        _story("22", "22_queue_and_sleep.py 10", "no-requests host", "sleep|request", "client()", **_PLAIN),
        _story("23", "23_lock_held_in_sleep.py 10", "host", "lock", r"time\.sleep", **_PLAIN),
    )
}
PAIRS = tuple(
    Pair(f"{number}-before", f"{number}-after", removes_cause=True)
    for number in ("01", "04", "06", "07", "08", "10", "11", "16")
)
