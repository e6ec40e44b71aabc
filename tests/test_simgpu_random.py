"""Random programs: what the streams did obeys the rules, and what a call said is what the trace reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gputop.simgpu import read_trace
from tests.simgpu_programs.harness import Bench

_PROGRAM = (
    "import ctypes, random\nrandom.seed(int(os.environ['SEED'])); c = Cuda()\n"
    "c.SetDeviceFlags(random.choice([1, 2, 4])); P = ctypes.c_void_p; ns = time.monotonic_ns\n"
    "streams = [None, P(2), c.stream(0), c.stream(0), c.stream(1), c.stream(1)]\n"
    "events = [[c.event(random.choice([0, 1])), None] for _ in range(4)]\n"
    "page, d, pin = bytes(1 << 18), c.malloc(1 << 18), c.pinned(1 << 18)\n"
    "number = ctypes.c_ulonglong(); ids = []\n"
    "for s in streams: assert c.StreamGetId(s, ctypes.byref(number)) == 0; ids.append(number.value)\n"
    "@ctypes.CFUNCTYPE(None, P)\n"
    "def call(_): time.sleep(random.random() * 2e-3)\n"
    "said = []\n"
    "for _ in range(300):\n"
    "    i = random.randrange(6); s = streams[i]; e = random.choice(events); t = ns()\n"
    "    what = random.choices('launch page pin host record wait sync query event all'.split(),\n"
    "                          [40, 5, 10, 4, 10, 10, 4, 10, 4, 1])[0]\n"
    "    if what == 'launch': c.launch(random.randrange(1000, 500_000), s)\n"
    "    elif what == 'page': c.copy_async(d, page, 1 << 18, H2D, s)\n"
    "    elif what == 'pin': c.copy_async(pin, d, 1 << 18, D2H, s)\n"
    "    elif what == 'host': c.LaunchHostFunc(s, call, None)\n"
    "    elif what == 'record': e[1] = [ids[i], t, c.EventRecord(e[0], s)]\n"
    "    elif what == 'wait': c.StreamWaitEvent(s, e[0], 0)\n"
    "    elif what == 'all': said.append(['all', 0, t, c.DeviceSynchronize(), ns()])\n"
    "    elif what == 'event' and e[1]: said.append(['stream', *e[1][:2], c.EventSynchronize(e[0]), ns()])\n"
    "    elif what == 'sync': said.append(['stream', ids[i], t, c.StreamSynchronize(s), ns()])\n"
    "    elif what == 'query': said.append(['stream', ids[i], t, c.StreamQuery(s), ns()])\n"
    "c.DeviceSynchronize(); print(json.dumps([ids, said]))"
)


@pytest.mark.parametrize("seed", range(8))
def test_streams_keep_their_order_and_calls_say_the_truth(tmp_path: Path, seed: int) -> None:
    settings = {"SEED": str(seed), "SIMGPU_TRACE": str(tmp_path / "trace"), "SIMGPU_LAUNCH_NS": "0"}
    ids, said = Bench(tmp_path).run(_PROGRAM, **settings)
    rows: Any = read_trace(tmp_path / "trace").rows
    assert len(rows) > 100
    legacy, blocking = ids[0], ids[1:4]
    for stream in ids:
        own = rows[rows["stream"] == stream]
        own = own[own["enqueue"].argsort(kind="stable")]
        assert (own["start"][1:] >= own["end"][:-1]).all(), "one after another, as queued"
    for row in rows[rows["stream"] == legacy]:
        others = rows[[stream in blocking for stream in rows["stream"]]]
        earlier = others["enqueue"] < row["enqueue"]
        assert (others["end"][earlier] <= row["start"]).all(), "the legacy stream waits for blocking ones"
        assert (others["start"][~earlier] >= row["end"]).all(), "and they for it"
    for what, stream, asked, code, returned in said:
        of = rows[rows["enqueue"] < asked]
        if what == "stream":
            seen = {legacy, *blocking} if stream == legacy else {stream}
            of = of[[number in seen for number in of["stream"]]]
        if code == 0:
            assert (of["end"] <= returned).all(), "it said that all of this is done"
