"""The catalogue of programs whose GPU waits for something that is not in front of it."""

from __future__ import annotations

from tests.stories.catalogue import PROGRAMS, Pair, Story

TITLE = "What the GPU waits for in the end"
_PLAIN: dict[str, object] = {"folder": PROGRAMS, "python": "plain", "loads": ("python",)}
STORIES: dict[str, Story] = {}
_PAIRS: list[Pair] = []


def _add(name: str, command: str, classes: str, what: str, end: str, **more: object) -> None:
    """A program before and after its fix."""
    settled = _PLAIN | more
    removes = bool(classes)
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
    _PAIRS.append(Pair(f"{name}-before", f"{name}-after", removes_cause=removes))


_PEER = "wait.* process"
_DOES = {"computes": "compute_peer()", "sleeps": "sleep_peer()", "asks": "compute_peer()"}
for _way in ("pipe", "unix", "tcp", "http", "eventfd", "futex", "flock"):
    for _does, _end in _DOES.items():
        # whether a process that only sleeps is a client with no request or a slow helper, nothing tells
        _class = "host no-requests" if _does == "sleeps" else "host"
        _add(f"{_way}-{_does}", f"peers.py {_way} {_does}", _class, _PEER, _end)
_add("exits", "peers.py exits computes", "host", "process", "# <- ends")

_LOADS = ("numba", "python")  # of an environment that has Numba and zmq
_NUMBA: dict[str, object] = {"python": "numba", "loads": _LOADS}
_CACHE_NS = {"SIMGPU_MALLOC_NS": "150000", "SIMGPU_FREE_NS": "100000"}  # as large blocks take on a GPU
_TORCH: dict[str, object] = {"python": "torch", "loads": ("torch", "triton", "python"), "needs_wheel": True}
_GUESS: dict[str, object] = {"hint": True}

# a slow reader of what the GPU's process writes; polling, of which no wakeup tells who is waited for
_add("reader-computes", "between.py pipe_computing", "host", _PEER, "read_computing()")
_add("reader-sleeps", "between.py pipe_sleeping", "host", _PEER, "read_sleeping()")
_add("reader-socket", "between.py socket_computing", "host", _PEER, "read_computing()")
_add("reader-writes", "between.py pipe_writing", "host", _PEER, "read_writing()")
for _way in ("yield", "sleep", "spin"):
    _add(f"poll-{_way}", f"between.py poll_{_way}", "host", "polls|process", "schedule()", **_GUESS)

# its own process
for _kind in ("nap_step", "nap_backoff", "nap_event"):
    _add(_kind.replace("_", "-"), f"waits.py {_kind}", "host", "sleep", f"{_kind}()")
for _kind in ("compute", "sleep", "write"):
    _end = f"{_kind}_holding() | write_synced()"
    _add(f"lock-{_kind}", f"waits.py {_kind}_holding", "host cpu", "lock", _end)
for _kind in ("gil_loop", "gil_json", "gil_regex", "gil_switch", "gil_short", "gil_mixed"):
    _add(_kind.replace("_", "-"), f"waits.py {_kind}", "host cpu", "GIL", f"{_kind}()")
# short work of the host between launches
_HOST = {
    "tokens": "count_tokens()",
    "tokens_ahead": "count_tokens()",
    "json": "parse_records()",
    "garbage": "collect_garbage()",
    "regex": "match_names()",
    "lines": "format_lines()",
}
for _kind, _end in _HOST.items():
    _add(f"brief-{_kind.replace('_', '-')}", f"brief.py {_kind}", "host", "work", _end)
for _kind in ("start_run", "start_pool", "start_fork"):
    _add(_kind.replace("_", "-"), f"waits.py {_kind}", "host", "process", f"# <- starts | {_kind}()")
for _kind in ("write_synced", "write_database", "read_uncached"):
    _add(_kind.replace("_", "-"), f"waits.py {_kind}", "host input", "disk|file", f"{_kind}()")
for _kind in ("crowd_hash", "crowd_zip", "crowd_crc"):
    _add(
        _kind.replace("_", "-"),
        f"waits.py {_kind}",
        "cpu",
        "threads of its own|own threads",
        f"{_kind}() | gil_loop()",
    )

# serving
_add("serve-pipe", "serving.py pipe", "host", _PEER, "tokenize()")
_add("serve-socket", "serving.py unix_socket", "host", _PEER, "tokenize()")
_add("serve-zmq", "serving.py zmq", "host", _PEER, "tokenize()", **_NUMBA)
_add("serve-asyncio", "serving.py asyncio", "host cpu", "", "blocked_loop()")
_add("serve-pool", "serving.py pool", "host", "process", "tokenize()")
_add("serve-broadcast", "serving.py broadcast", "host", "polls|process", "schedule()", **_GUESS)
_add("serve-core-schedules", "serving.py core_schedules", "host", "polls|process", "schedule()", **_GUESS)
_add(
    "serve-core-detokenizes",
    "serving.py core_detokenizes",
    "host",
    "polls|process",
    "core_detokenize()",
    **_GUESS,
)
_add("serve-timer", "serving.py timer", "host no-requests", "sleep|timer|time-out", "batch_timer()")
_add("serve-detokenize", "serving.py detokenizing", "host sync", "", "detokenize()")
_add("serve-slow-client", "serving.py slow_client", "host", _PEER, "slow_client()")
_add("serve-few", "serving.py few_requests", "", "", "")

# no Python
for _kind, _end in (("mutex", "simulate()"), ("condition", "simulate()"), ("pipe", "simulate()")):
    _add(f"native-{_kind}", f"native.cpp {_kind}", "host cpu", "", _end, python="native", loads=())
# compiled by nvcc; a kernel here takes as long as the others' steps
_CUDA: dict[str, object] = {"python": "native", "loads": (), "settings": {"SIMGPU_KERNEL_NS": "50000"}}
for _kind, _class, _what, _end in (
    ("host", "host", "host work", "simulate() | main()"),
    ("thread", "host cpu", "", "simulate()"),
    ("copies", "copy", "pageable|copied every step", "send_all() | main()"),
):
    _add(f"nvcc-{_kind}", f"kernels.cu {_kind}", _class, _what, _end, **_CUDA)

# Numba
for _kind in ("arguments_three", "arguments_one", "arguments_many"):
    _add(
        f"numba-{_kind.rpartition('_')[2]}",
        f"within_numba.py {_kind}",
        "copy sync",
        "host arrays",
        "# <- copies",
        **_NUMBA,
    )
_add("numba-anew", "within_numba.py made_anew", "host", "compiles", "# <- compiles", **_NUMBA)

# short work of the host beside a small model; and launches, which are none
for _kind, _end in (("encode", "encode_words()"), ("config", "read_config()")):
    _add(f"small-{_kind}", f"within_small.py {_kind}", "host", "work", _end, **_TORCH)
_add("small-tiny", "within_small.py tiny", "launch", "launches", "# <- launches", **_TORCH)

# what PyTorch does by itself
for _kind in ("switch", "context", "convolution"):
    _add(f"anomaly-{_kind}", f"within_torch.py anomaly_{_kind}", "sync", "anomaly", "# <- backward", **_TORCH)
for _kind in ("fork", "pinned", "slow"):
    _add(f"workers-{_kind}", f"within_torch.py workers_{_kind}", "input", "anew", "# <- loader", **_TORCH)
for _kind in ("table", "list", "mask"):
    _add(
        f"index-{_kind}",
        f"within_torch.py index_{_kind}",
        "sync",
        "read|index|scalar|size",
        "# <- reads",
        **_TORCH,
    )
for _kind in ("model", "both", "list"):
    _add(f"save-{_kind}", f"within_torch.py save_{_kind}", "sync host", "torch.save", "# <- saves", **_TORCH)
_CACHE: dict[str, object] = {"settings": _CACHE_NS, **_TORCH}
for _kind in ("each_step", "after_batch", "of_lengths"):
    _name = f"cache-{_kind.replace('_', '-')}"
    _add(_name, f"within_torch.py cache_{_kind}", "sync launch", "empty_cache", "# <- empties", **_CACHE)
_add("cache-collected", "within_torch.py cache_collected", "host", "work", "# <- collects", **_CACHE)
for _kind in ("shapes", "number", "anew"):
    _add(
        f"compile-{_kind}", f"within_torch.py compile_{_kind}", "host", "compiles", "# <- compiles", **_TORCH
    )

PAIRS = tuple(_PAIRS)
