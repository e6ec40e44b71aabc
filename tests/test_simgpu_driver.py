"""What frameworks ask of the driver beside launching and copying."""

from __future__ import annotations

import pytest

from tests.simgpu_programs.harness import DRIVER, Bench


@pytest.mark.parametrize(
    ("name", "version", "form"),
    [
        ("cuMemAlloc", 2000, "cuMemAlloc"),
        ("cuMemAlloc", 3020, "cuMemAlloc_v2"),
        ("cuCtxCreate", 12040, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12050, "cuCtxCreate_v4"),
        ("cuStreamGetCaptureInfo", 12020, "cuStreamGetCaptureInfo_v2"),
        ("cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"),
        ("cuEventElapsedTime", 12070, "cuEventElapsedTime"),
        ("cuEventElapsedTime", 13000, "cuEventElapsedTime_v2"),
        ("cuLaunchKernel", 99999, "cuLaunchKernel"),
        ("cuGetExportTable", 12000, "cuGetExportTable"),
    ],
)
def test_a_name_means_the_form_of_the_version_that_is_requested(
    bench: Bench, name: str, version: int, form: str
) -> None:
    result = bench.run(
        f"{DRIVER}p = P(); s = I(9)\n"
        f"e = d.cuGetProcAddress_v2({name.encode()!r}, ref(p), {version}, ctypes.c_uint64(0), ref(s))\n"
        f"print(json.dumps([e, s.value, p.value == ctypes.cast(d.{form}, P).value]))"
    )
    assert result == [0, 0, True]


def test_a_version_from_before_the_name_has_no_form_of_it(bench: Bench) -> None:
    result = bench.run(
        f"{DRIVER}r = []\n"
        "for name, version in ((b'cuStreamGetGreenCtx', 12030), (b'cuNoSuch', 12030)):\n"
        "    p = P(1); s = I(9)\n"
        "    e = d.cuGetProcAddress_v2(name, ref(p), version, ctypes.c_uint64(0), ref(s))\n"
        "    r.append([e, s.value, p.value])\n"
        "print(json.dumps(r))"
    )
    assert result == [[500, 2, None], [500, 1, None]]


def test_kernels_whose_names_differ_only_at_their_ends_are_two(bench: Bench) -> None:
    names = bench.run(
        f"{DRIVER}a, b, c = (kernel(b'k' * 5000 + end) for end in (b'a', b'b', b'a'))\n"
        "n = ctypes.c_char_p(); d.cuFuncGetName(ref(n), b)\n"
        "print(json.dumps([a.value == b.value, a.value == c.value, n.value.decode()]))"
    )
    assert names == [False, True, "k" * 5000 + "b"]


def test_only_a_kernel_that_declares_itself_has_its_duration_in_its_argument(bench: Bench) -> None:
    bench.run(
        f"{DRIVER}assert launch(kernel(b'some_kernel'), 3_000_000) == 0\n"
        "assert launch(kernel(b'_Z8simgpu_xPf'), 3_000_000) == 0; d.cuCtxSynchronize()",
        SIMGPU_KERNEL_NS="7000",
    )
    assert bench.processes()[0].kernel_busy_ns == 3_007_000


def test_clusters_fit_into_the_parts_of_the_device(bench: Bench) -> None:
    body = (
        "class A(ctypes.Structure): _fields_ = (('id', I), ('pad', I), ('value', ctypes.c_uint * 16))\n"
        "class C(ctypes.Structure):\n"
        "    _fields_ = (('dims', ctypes.c_uint * 6), ('shared', ctypes.c_uint), ('stream', P),\n"
        "                ('attrs', ctypes.POINTER(A)), ('n', ctypes.c_uint))\n"
        "f = kernel(b'k'); r = []\n"
        "for size in (1, 2, 4, 8, 16, 17):\n"
        "    a = A(4, 0, (ctypes.c_uint * 16)(size, 1, 1)); n = I()\n"
        "    c = C((ctypes.c_uint * 6)(64, 1, 1, 384, 1, 1), 200_000, None, ctypes.pointer(a), 1)\n"
        "    r.append([d.cuOccupancyMaxActiveClusters(ref(n), f, ref(c)), n.value])\n"
        "z = Z(); e = d.cuOccupancyAvailableDynamicSMemPerBlock(ref(z), f, 2, 512)\n"
        "b = I(); d.cuOccupancyMaxActiveBlocksPerMultiprocessor(ref(b), f, 512, z)\n"
        "print(json.dumps([r, e, z.value, b.value]))"
    )
    clusters, error, shared, blocks = bench.run(DRIVER + body)
    assert clusters == [[0, 132], [0, 66], [0, 32], [0, 16], [0, 8], [1, 0]]
    assert (error, blocks) == (0, 2), "so many blocks fit with that much shared memory"
    assert 110_000 < shared < 116_736


def test_facts_about_pointers_come_several_at_once(bench: Bench) -> None:
    result = bench.run(
        f"{DRIVER}p = P(); d.cuMemAlloc_v2(ref(p), Z(1 << 20)); r = []\n"
        "for address in (p.value + 4096, ctypes.addressof(p)):\n"
        "    t, o, m, s, z = ctypes.c_uint(9), I(9), ctypes.c_uint(9), ctypes.c_uint64(9), Z(9)\n"
        "    data = (P * 5)(*(ctypes.addressof(x) for x in (t, o, m, s, z)))\n"
        "    e = d.cuPointerGetAttributes(5, (I * 5)(2, 9, 8, 11, 12), data, P(address))\n"
        "    r.append([e, t.value, o.value, m.value, s.value == p.value, z.value])\n"
        "print(json.dumps(r))"
    )
    assert result == [[0, 2, 0, 0, True, 1 << 20], [0, 0, -2, 0, False, 0]]


def test_a_variable_of_a_module_has_an_address_that_stays(bench: Bench) -> None:
    result = bench.run(
        f"{DRIVER}a, b, c, z = P(), P(), P(), Z(); v = ctypes.c_uint64(77); w = ctypes.c_uint64()\n"
        "e = [d.cuModuleGetGlobal_v2(ref(a), ref(z), mod, b'seed'),\n"
        "     d.cuLibraryGetGlobal(ref(b), None, mod, b'seed'),\n"
        "     d.cuModuleGetGlobal_v2(ref(c), None, mod, b'other')]\n"
        "d.cuMemcpyHtoD_v2(a, ref(v), Z(8)); d.cuMemcpyDtoH_v2(ref(w), b, Z(8))\n"
        "print(json.dumps([e, a.value == b.value, a.value == c.value, z.value >= 8, w.value]))"
    )
    assert result == [[0, 0, 0], True, False, True, 77]


def test_what_a_framework_asks_at_its_start(bench: Bench) -> None:
    result = bench.run(
        f"{DRIVER}m, o, g, n = I(), I(9), P(5), I()\n"
        "e = [d.cuModuleGetLoadingMode(ref(m)), d.cuCtxGetDevice_v2(ref(o), ctx),\n"
        "     d.cuStreamGetGreenCtx(None, ref(g))]\n"
        "import pynvml; pynvml.nvmlInit(); init = ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2()\n"
        "print(json.dumps([e, m.value, o.value, g.value, init]))"
    )
    assert result == [[0, 0, 0], 2, 0, None, 0]
