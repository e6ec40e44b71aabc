"""Short names of kernels: what differs between them stays, what is alike goes."""

from __future__ import annotations

from gputop.engine.calls.kernel_names import short_names


def test_templates_are_folded_so_that_what_differs_stays() -> None:
    names = [
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, "
        "1> >(int, at::native::FillFunctor<float>, std::array<char*, 1>)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
        "std::array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3>)",
        "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_128x64_nn_align8>(cutlass_80::Params)",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_16x16>(cutlass_80::Params)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, 8>(float*, float const*, int)",
        "triton_poi_fused_add_0",
        "gemm",
    ]
    assert short_names(names) == [
        "vectorized_elementwise_kernel<FillFunctor, 1>",
        "vectorized_elementwise_kernel<CUDAFunctor_add, 3>",
        "cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_128x64_nn_align8>",
        "cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_16x16>",
        "softmax_warp_forward",
        "triton_poi_fused_add_0",
        "gemm",
    ]


def test_different_kernels_have_different_names_however_alike_or_long() -> None:
    long = "sm80_xmma_gemm_" + "f32" * 60
    names = [f"{long}_tile{number}x64" for number in range(3)] + [
        "f<int>(int)",
        "f<char>(int)",
        "f(int)",
        "f",
    ]
    names += [f"void k<{number}, std::array<char*, 2>>(int)" for number in range(20)] + ["", "<", "((", ">>>"]
    short = short_names(names)
    assert len(set(short)) == len(names)
    assert max(map(len, short)) < 90
    assert short[0].endswith("_tile0x64")
    assert short_names([]) == []


def test_a_kernel_alone_whose_function_says_nothing_has_what_it_runs() -> None:
    assert short_names(["void cutlass::Kernel2<cutlass_80_simt_sgemm>(P)"]) == [
        "cutlass::Kernel2<cutlass_80_simt_sgemm>"
    ]
