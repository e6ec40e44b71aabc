// An H100's rates: matrix products by their size and type, everything else by the bytes it touches.
#include "cost.h"

#include <ATen/Context.h>

#include <algorithm>
#include <unordered_map>

namespace shim {
namespace {

constexpr double kReached = 0.6;        // of the peak, by a good matrix product
constexpr double kBandwidth = 3350;     // bytes a ns
constexpr double kMeet = 1 << 18;       // bytes of a reduction from which its blocks need to meet
constexpr double kLeastProduct = 3000;  // ns
constexpr int64_t kChunk = 65536, kBlocks = 320, kTensors = 110; // of multi_tensor_apply

// Operations that need more than one kernel.
const std::unordered_map<std::string, int> kMany = {
    {"sort", 6},     {"argsort", 6},       {"topk", 3},   {"randperm", 4},
    {"nonzero", 3},  {"_unique2", 8},      {"cumsum", 2}, {"native_layer_norm_backward", 2},
    {"cat", 1},      {"multinomial", 3},   {"var_mean", 1}, {"embedding_dense_backward", 4},
    {"_index_put_impl_", 1}, {"masked_select", 3}, {"native_group_norm", 2}, {"native_group_norm_backward", 2},
};

double peak(at::ScalarType type) { // flop a ns
  switch (type) {
    case at::kHalf:
    case at::kBFloat16:
      return 989e3;
    case at::kDouble:
      return 67e3;
    default:
      return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
                      at::Float32Precision::TF32
                 ? 494e3
                 : 67e3;
  }
}

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  for (const auto& t : tensors) {
    if (!t.defined()) continue;
    double held = static_cast<double>(t.element_size());
    for (int64_t d = 0; d < t.dim(); d++)
      if (t.stride(d) != 0 || t.size(d) == 0) held *= static_cast<double>(t.size(d));
    sum += held;
  }
  return sum;
}

// Elements that a product makes.
double results_of(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& results) {
  const auto& made = results.empty() ? tensors.back() : results[0];
  return made.defined() ? static_cast<double>(made.numel()) : 0;
}

bool starts(const std::string& name, const char* with) { return name.rfind(with, 0) == 0; }

// Multiplications and additions of a product, 0 for what is none.
double flops_of(const std::string& op, const std::vector<at::Tensor>& t, const std::vector<at::Tensor>& results) {
  auto product = [](const at::Tensor& a, const at::Tensor& b) {
    return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
  };
  if ((op == "mm" || op == "bmm") && t.size() >= 2) return product(t[0], t[1]);
  if ((op == "addmm" || op == "baddbmm" || op == "_addmm_activation") && t.size() >= 3) return product(t[1], t[2]);
  if (op == "convolution" && t.size() >= 2 && !results.empty())
    return 2.0 * static_cast<double>(results[0].numel()) * static_cast<double>(t[1].numel()) / t[1].size(0);
  if (op == "convolution_backward" && t.size() >= 3)
    return 2.0 * 2.0 * static_cast<double>(t[0].numel()) * static_cast<double>(t[2].numel()) / t[2].size(0);
  return 0;
}

const char* product_name(const std::string& op, at::ScalarType type) {
  bool tensor = type == at::kHalf || type == at::kBFloat16;
  if (starts(op, "conv")) return interned("sm90_xmma_fprop_implicit_gemm_" + op);
  return tensor ? "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"
         : peak(type) > 100e3 ? "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_cublas"
                              : "ampere_sgemm_128x128_nn";
}

int foreach_launches(const std::vector<at::Tensor>& tensors) {
  int64_t chunks = 0, count = 0;
  for (const auto& t : tensors) {
    if (!t.defined()) continue;
    chunks += (t.numel() + kChunk - 1) / kChunk;
    count++;
  }
  return static_cast<int>(std::max<int64_t>(1, std::max((count + kTensors - 1) / kTensors, (chunks + kBlocks - 1) / kBlocks)));
}

} // namespace

std::vector<Work> kernels_of(const std::string& op, const std::vector<at::Tensor>& tensors,
                             const std::vector<at::Tensor>& results) {
  double bytes = bytes_of(tensors) + bytes_of(results);
  if (bytes == 0) return {};
  double flops = flops_of(op, tensors, results);
  if (flops > 0) {
    auto type = tensors.back().scalar_type();
    int count = op == "convolution_backward" ? 2 : 1;
    double ns = std::max({kLeastProduct, flops / (kReached * peak(type)), bytes / (0.9 * kBandwidth)});
    double math = flops / ns / peak(type), dram = bytes / ns / kBandwidth;
    auto thousandths = [](double part) { return static_cast<uint16_t>(1000 * std::min(part, 1.0)); };
    bool tensor = type == at::kHalf || type == at::kBFloat16 || peak(type) > 100e3;
    double filled = std::min(1.0, std::max(math / kReached, results_of(tensors, results) / (132.0 * 128 * 128)));
    sg_use use{thousandths(0.95 * filled), thousandths(0.2 * filled), tensor ? thousandths(math) : uint16_t(0),
               thousandths(dram)};
    Work work{product_name(op, type), true, {static_cast<uint64_t>(ns / count), use}};
    return std::vector<Work>(count, work);
  }
  bool multi = starts(op, "_foreach") || starts(op, "_fused") || starts(op, "_amp_foreach");
  auto known = kMany.find(op);
  int count = multi ? foreach_launches(tensors) : known == kMany.end() ? 1 : known->second;
  std::string name = multi ? "void at::native::multi_tensor_apply_kernel<" + op + ">"
                           : "void at::native::vectorized_elementwise_kernel<4, " + op + ">";
  Work work = passing(interned(name), bytes / count);
  work.clears = (op == "sum" || op == "mean" || op == "native_layer_norm_backward") && bytes > kMeet;
  return std::vector<Work>(count, work);
}

} // namespace shim
