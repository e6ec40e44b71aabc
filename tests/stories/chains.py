"""The catalogue of programs whose GPU waits for something that is not in front of it."""

from __future__ import annotations

from tests.stories.catalogue import PROGRAMS, Pair, Story

_PLAIN = {"folder": PROGRAMS, "python": "plain", "loads": ("python",)}
STORIES: dict[str, Story] = {}
_PAIRS: list[Pair] = []


def _add(name: str, command: str, classes: str, what: str, end: str, **more: object) -> None:
    """A program before and after its fix."""
    settled = _PLAIN | more
    STORIES[f"{name}-before"] = Story(
        f"{name}-before",
        f"{command} before",
        tuple(classes.split()),
        what=what,
        end=end,
        **settled,  # type: ignore[arg-type]
    )
    healthy = {key: value for key, value in settled.items() if key not in ("fix", "hint")}
    STORIES[f"{name}-after"] = Story(f"{name}-after", f"{command} after", (), **healthy)  # type: ignore[arg-type]
    _PAIRS.append(Pair(f"{name}-before", f"{name}-after", removes_cause=True))


_PEER = "wait.* process"
_DOES = {"computes": "compute_peer()", "sleeps": "sleep_peer()", "asks": "compute_peer()"}
for _way in ("pipe", "unix", "tcp", "http", "eventfd", "futex", "flock"):
    for _does, _end in _DOES.items():
        _add(f"{_way}-{_does}", f"peers.py {_way} {_does}", "host", _PEER, _end)
_add("exits", "peers.py exits computes", "host", "process", "# <- ends")

PAIRS = tuple(_PAIRS)
