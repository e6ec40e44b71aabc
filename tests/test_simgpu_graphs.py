"""Graphs last as long as what they hold, branches beside one another."""

from __future__ import annotations

import pytest

from tests.simgpu_programs.harness import Bench, figures, patient


@patient
def test_a_graph_is_one_enqueue_of_its_sum(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); s = c.stream(); g, x = ctypes.c_void_p(), ctypes.c_void_p()\n"
        "assert c.StreamBeginCapture(s, 0) == 0\n"
        "for _ in range(5): c.launch(2_000_000, s)\n"
        "bad = c.StreamSynchronize(s); assert c.StreamEndCapture(s, ctypes.byref(g)) == 901\n"
        "assert c.StreamBeginCapture(s, 0) == 0\n"
        "for _ in range(5): c.launch(2_000_000, s)\n"
        "assert c.StreamEndCapture(s, ctypes.byref(g)) == 0\n"
        "empty = c.StreamQuery(s)\n"
        "assert c.GraphInstantiate(ctypes.byref(x), g, ctypes.c_ulonglong(0)) == 0\n"
        "assert c.GraphLaunch(x, s) == 0\n"
        "t = c.timed(c.StreamSynchronize, s)[1]\n"
        "print(json.dumps([bad, empty, t, c.GraphExecDestroy(x), c.GraphDestroy(g), c.GraphLaunch(x, s)]))"
    )
    assert result[:2] == [900, 0]
    with figures():
        assert 9 < result[2] < 16
    assert result[3:] == [0, 0, 1]
    (process,) = bench.processes()
    assert process.calls["cuGraphLaunch"] == 2
    with figures():
        assert process.gpu_busy_ns == 10_000_000


@pytest.mark.parametrize("library", ["libcudart.so.12", "libcudart.so.13"])
@patient
def test_a_graph_built_by_hand_lasts_as_its_longest_path(bench: Bench, library: str) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); s = c.stream(); P, z = ctypes.c_void_p, ctypes.c_size_t\n"
        "g = c.handle('GraphCreate', 0); x, n = P(), P()\n"
        "class Node(ctypes.Structure):\n"
        "    _fields_ = [('f', P), ('dims', ctypes.c_uint * 6), ('shared', ctypes.c_uint),\n"
        "                ('args', P), ('extra', P)]\n"
        "v = ctypes.c_uint64(4_000_000); a = (P * 1)(ctypes.addressof(v))\n"
        "node = Node(4096, (1,) * 6, 0, ctypes.cast(a, P), None)\n"
        "def add(*deps):\n"
        "    deps = (P * 3)(*deps), z(len(deps))\n"
        "    return c.GraphAddKernelNode(ctypes.byref(n), g, *deps, ctypes.byref(node))\n"
        "e = [add()]; a0 = n.value; e += [add(a0), add(a0)]; a2 = n.value; e += [add()]; a3 = n.value\n"
        "one, two = (P * 1)(a2), (P * 1)(a3)\n"
        "kinds = [None] if os.environ['TEST_CUDART'][-1] == '3' else []\n"
        "e.append(c.GraphAddDependencies(g, one, two, *kinds, z(1)))\n"
        "e.append(c.GraphInstantiate(ctypes.byref(x), g, ctypes.c_ulonglong(0)))\n"
        "v.value = 1; e.append(c.GraphLaunch(x, s)); t = c.timed(c.StreamSynchronize, s)[1]\n"
        "c.GraphAddDependencies(g, two, one, *kinds, z(1))\n"
        "e.append(c.GraphInstantiate(ctypes.byref(x), g, ctypes.c_ulonglong(0)))\n"
        "print(json.dumps([e, t]))",
        TEST_CUDART=library,
    )
    assert result[0] == [0] * 7 + [1], "the last one runs in a circle"
    with figures():
        assert 11 < result[1] < 18, "arguments are read when the node is added"
        assert bench.processes()[-1].gpu_busy_ns == 12_000_000


def test_branches_of_a_captured_graph_run_beside_one_another(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); a, b = c.stream(1), c.stream(1); f, j = c.event(), c.event()\n"
        "g, x = ctypes.c_void_p(), ctypes.c_void_p(); M = 1_000_000\n"
        "e = [c.StreamBeginCapture(a, 0), c.launch(2 * M, a)]\n"
        "e += [c.EventRecord(f, a), c.StreamWaitEvent(b, f, 0)]\n"
        "e += [c.launch(5 * M, b), c.launch(3 * M, a), c.EventRecord(j, b), c.StreamWaitEvent(a, j, 0)]\n"
        "e += [c.launch(1 * M, a), c.StreamEndCapture(a, ctypes.byref(g))]\n"
        "e += [c.GraphInstantiate(ctypes.byref(x), g, ctypes.c_ulonglong(0)), c.GraphLaunch(x, a)]\n"
        "print(json.dumps([*e, c.StreamSynchronize(a), c.StreamSynchronize(b)]))"
    )
    assert result == [0] * 14
    assert bench.processes()[0].gpu_busy_ns == 8_000_000, "2, then 5 beside 3, then 1"


@patient
def test_making_a_graph_executable_costs_what_is_set(bench: Bench) -> None:
    body = (
        "import ctypes\nc = Cuda(); s = c.stream(1); g, x = ctypes.c_void_p(), ctypes.c_void_p()\n"
        "c.StreamBeginCapture(s, 0); c.launch(1000, s); c.StreamEndCapture(s, ctypes.byref(g))\n"
        "print(json.dumps(c.timed(c.GraphInstantiate, ctypes.byref(x), g, ctypes.c_ulonglong(0))))"
    )
    code, wall, cpu = bench.run(body, SIMGPU_GRAPH_INSTANTIATE_NS="12000000")
    assert code == 0
    with figures():
        assert 11.9 < wall < 120
        assert cpu > 2
        assert bench.run(body)[1] < 11
