// Copies as aten/src/ATen/native/cuda/Copy.cu makes them.
#include "cost.h"
#include "runtime.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace shim {
namespace {

using at::Tensor;

void within_device(const Tensor& dst, const Tensor& src) {
  bool plain = dst.scalar_type() == src.scalar_type() && dst.is_non_overlapping_and_dense() &&
      dst.strides() == src.strides();
  size_t bytes = dst.numel() * dst.element_size();
  if (plain) {
    if (dst.data_ptr() == src.data_ptr()) return;
    check(runtime().copy(dst.mutable_data_ptr(), src.const_data_ptr(), bytes, D2D, current_stream()), "cudaMemcpyAsync");
    return;
  }
  static const char* name = interned("void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>");
  launch(passing(name, static_cast<double>(bytes + src.numel() * src.element_size())));
}

// Between host and device: types are converted on the host, on the device if the copy does not block.
Tensor& with_temporaries(Tensor& dst, const Tensor& src, bool non_blocking) {
  auto converts = non_blocking ? at::kCUDA : at::kCPU;
  Tensor to, from;
  if (src.device().type() == converts) {
    to = dst.is_contiguous() ? dst : at::empty_like(dst, at::MemoryFormat::Contiguous);
    from = src.to(dst.scalar_type()).expand_as(dst).contiguous();
  } else {
    bool same = dst.scalar_type() == src.scalar_type();
    to = dst.is_contiguous() && same
        ? dst
        : at::empty_like(dst, dst.options().dtype(src.scalar_type()), at::MemoryFormat::Contiguous);
    from = src.expand_as(dst).contiguous();
  }
  to.copy_(from, non_blocking);
  if (!to.is_same(dst)) dst.copy_(to, non_blocking);
  return dst;
}

Tensor& copy(Tensor& dst, const Tensor& given, bool non_blocking) {
  if (dst.is_same(given) || dst.numel() == 0) return dst;
  Tensor src = given.expand_as(dst);
  if (src.is_cuda() && dst.is_cuda()) {
    within_device(dst, src);
    return dst;
  }
  bool alike = dst.scalar_type() == src.scalar_type() && dst.is_non_overlapping_and_dense() &&
      (dst.strides() == src.strides() || (dst.is_contiguous() && src.is_contiguous()));
  if (!alike) return with_temporaries(dst, src, non_blocking);
  Kind kind = dst.is_cuda() ? H2D : D2H;
  size_t bytes = dst.numel() * dst.element_size();
  if (!non_blocking) {
    memcpy_and_sync(dst.mutable_data_ptr(), src.const_data_ptr(), bytes, kind);
    return dst;
  }
  check(runtime().copy(dst.mutable_data_ptr(), src.const_data_ptr(), bytes, kind, current_stream()), "cudaMemcpyAsync");
  record_pinned((kind == H2D ? src : dst).storage().data_ptr());
  return dst;
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) { m.impl("copy_", copy); }

} // namespace
} // namespace shim
