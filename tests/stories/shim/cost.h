// Which kernels an operation of PyTorch launches on the device, and how long they last there.
#pragma once

#include "runtime.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace shim {

// `tensors` are those of the arguments in their order, `results` what it made anew.
std::vector<Work> kernels_of(const std::string& op, const std::vector<at::Tensor>& tensors,
                             const std::vector<at::Tensor>& results);

} // namespace shim
