// Every operation on "cuda" tensors: shapes by PyTorch's own meta kernels, then the launches it would make.
#include "cost.h"
#include "runtime.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_map>

namespace shim {
namespace {

using at::IValue;
using at::Tensor;
using c10::OperatorHandle;
using Stack = torch::jit::Stack;

const c10::DispatchKeySet kCuda(c10::DispatchKey::CUDA);

// What an operation makes of arguments of one form: remembered, because asking the meta kernels is slow.
struct Made {
  enum { kNew, kArgument, kValue, kUndefined } how;
  size_t argument = 0;
  std::vector<int64_t> sizes, strides;
  at::ScalarType type = at::kFloat;
  IValue value;
};
struct Result {
  bool list = false;
  std::vector<Made> parts;
};
struct Resized {
  size_t tensor;
  std::vector<int64_t> sizes, strides;
};
struct Plan {
  std::vector<Result> results;
  std::vector<Resized> resized;
  std::vector<Work> work;
};

// The form of a call as text; false if it holds something that cannot be told apart.
class Form {
 public:
  explicit Form(const OperatorHandle& op) { add(reinterpret_cast<int64_t>(&op.schema())); }
  void add(int64_t number) { text_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(const Tensor& t) {
    if (!t.defined()) return add(-7);
    add(static_cast<int64_t>(t.scalar_type()) | static_cast<int64_t>(t.is_cuda()) << 8 | t.dim() << 16 |
        static_cast<int64_t>(t.unsafeGetTensorImpl()->is_wrapped_number()) << 32);
    for (auto size : t.sizes()) add(size);
    for (auto stride : t.strides()) add(stride);
  }
  bool add(const IValue& value) {
    if (value.isNone()) add(-1);
    else if (value.isTensor()) add(value.toTensor());
    else if (value.isInt()) add(2), add(value.toInt());
    else if (value.isBool()) add(3), add(value.toBool());
    else if (value.isDouble()) add(4); // scalars of computations: no shape depends on them
    else if (value.isDevice()) add(5);
    else if (value.isString()) add(6), text_ += value.toStringRef();
    else if (value.isList()) {
      add(100 + static_cast<int64_t>(value.toListRef().size()));
      for (const IValue& one : value.toListRef())
        if (!add(one)) return false;
    } else if (value.isGenerator() || value.isStream()) add(8);
    else return false;
    return true;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Tensor meta_of(const Tensor& t) {
  if (t.is_cpu() && t.dim() == 0) return t;
  Tensor made = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta).pinned_memory(false));
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

IValue to_meta(const IValue& value, std::vector<Tensor>& before, std::vector<Tensor>& after) {
  if (value.isTensor()) {
    const Tensor& t = value.toTensor();
    if (!t.defined()) return value;
    Tensor meta;
    for (size_t i = 0; i < before.size() && !meta.defined(); i++)
      if (before[i].is_same(t)) meta = after[i];
    if (!meta.defined()) meta = meta_of(t);
    before.push_back(t); // as tensors_in numbers them
    after.push_back(meta);
    return meta;
  }
  if (value.isDevice()) return value.toDevice().is_cuda() ? IValue(c10::Device(at::kMeta)) : value;
  if (value.isTensorList()) {
    c10::List<Tensor> made;
    for (const IValue& one : value.toListRef()) made.push_back(to_meta(one, before, after).toTensor());
    return made;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> made;
    for (const IValue& one : value.toListRef())
      made.push_back(one.isNone() ? std::optional<Tensor>() : to_meta(one, before, after).toTensor());
    return made;
  }
  return value;
}

void tensors_in(const IValue& value, std::vector<Tensor>& found) {
  if (value.isTensor() && value.toTensor().defined()) found.push_back(value.toTensor());
  if (value.isList())
    for (const IValue& one : value.toListRef()) tensors_in(one, found);
}

bool same(at::IntArrayRef a, at::IntArrayRef b) { return a == b; }

Made made_of(const IValue& value, const std::vector<Tensor>& after) {
  if (!value.isTensor()) return Made{Made::kValue, 0, {}, {}, at::kFloat, value};
  const Tensor& t = value.toTensor();
  if (!t.defined()) return Made{Made::kUndefined};
  for (size_t i = 0; i < after.size(); i++)
    if (after[i].is_same(t)) return Made{Made::kArgument, i};
  return Made{Made::kNew, 0, t.sizes().vec(), t.strides().vec(), t.scalar_type()};
}

Plan planned(const OperatorHandle& op, const Stack& arguments) {
  std::vector<Tensor> before, after, results;
  Stack stack;
  for (const IValue& one : arguments) stack.push_back(to_meta(one, before, after));
  {
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard plain(c10::autocast_dispatch_keyset);
    op.callBoxed(&stack);
  }
  Plan plan;
  for (const IValue& value : stack) {
    Result result;
    result.list = value.isTensorList();
    if (result.list)
      for (const IValue& one : value.toListRef()) result.parts.push_back(made_of(one, after));
    else
      result.parts.push_back(made_of(value, after));
    plan.results.push_back(result);
    std::vector<Tensor> told;
    tensors_in(value, told);
    for (const Tensor& t : told)
      if (std::none_of(after.begin(), after.end(), [&](const Tensor& known) { return known.is_same(t); }))
        results.push_back(t);
  }
  for (size_t i = 0; i < before.size(); i++)
    if (after[i].is_meta() && !same(before[i].sizes(), after[i].sizes()))
      plan.resized.push_back({i, after[i].sizes().vec(), after[i].strides().vec()});
  const std::string& name = op.schema().name();
  std::string plain = name.substr(name.find("::") + 2);
  if (plain.size() > 1 && plain.back() == '_' && plain[0] != '_') plain.pop_back();
  plan.work = kernels_of(plain, after, results);
  return plan;
}

Tensor fresh(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(), kCuda, type);
}

void resize_to(const Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides) {
  auto* impl = t.unsafeGetTensorImpl();
  size_t bytes = at::detail::computeStorageNbytes(sizes, strides, t.element_size(), t.storage_offset());
  auto storage = t.storage();
  if (storage.nbytes() < bytes) {
    storage.set_data_ptr(device_allocator()->allocate(bytes));
    storage.set_nbytes(bytes);
  }
  impl->set_sizes_and_strides(sizes, strides);
}

const Plan& plan_of(const OperatorHandle& op, const Stack& arguments, Plan& room) {
  static std::mutex mutex;
  static std::unordered_map<std::string, Plan> known; // nodes stay where they are
  Form form(op);
  form.add(static_cast<int64_t>(at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL)));
  bool told = true;
  for (const IValue& one : arguments) told = told && form.add(one);
  if (told) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = known.find(form.text());
    if (found != known.end()) return found->second;
  }
  room = planned(op, arguments);
  if (!told) return room;
  std::lock_guard<std::mutex> lock(mutex);
  return known.emplace(form.text(), room).first->second;
}

void fallback(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  size_t count = op.schema().arguments().size();
  Stack arguments(stack->end() - static_cast<long>(count), stack->end());
  stack->resize(stack->size() - count);
  Plan room;
  const Plan& plan = plan_of(op, arguments, room);
  std::vector<Tensor> own;
  for (const IValue& one : arguments) tensors_in(one, own);
  for (const Resized& one : plan.resized) resize_to(own[one.tensor], one.sizes, one.strides);
  auto make = [&](const Made& made) -> IValue {
    if (made.how == Made::kValue) return made.value;
    if (made.how == Made::kUndefined) return Tensor();
    return made.how == Made::kArgument ? own[made.argument] : fresh(made.sizes, made.strides, made.type);
  };
  Stack out;
  for (const Result& result : plan.results) {
    if (!result.list) {
      out.push_back(make(result.parts[0]));
      continue;
    }
    c10::List<Tensor> list;
    for (const Made& made : result.parts) list.push_back(make(made).toTensor());
    out.push_back(list);
  }
  for (const Work& work : plan.work) launch(work);
  for (IValue& one : out) stack->push_back(std::move(one));
}

// -- what has no shape of its own, or none that the arguments tell ----------------------------

Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<c10::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), device_allocator(), kCuda,
                                   c10::dtype_or_default(type), format);
}
Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return fresh(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), c10::dtype_or_default(type));
}
Tensor as_strided(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                  std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset.has_value() ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}
Tensor view(const Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}
Tensor reshape_alias(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}
const Tensor& resize(const Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  resize_to(self, sizes, c10::contiguous_strides(sizes));
  return self;
}
Tensor& set_storage(Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                    c10::SymIntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  impl->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
  return self;
}

Tensor& set_whole_storage(Tensor& self, at::Storage source) {
  auto size = static_cast<int64_t>(source.nbytes()) / static_cast<int64_t>(self.element_size());
  return set_storage(self, std::move(source), 0, {size}, {1});
}

// Numbers that the host reads go through a pinned word.
void read_count(const Tensor& from) {
  Tensor word = at::detail::empty_cpu({1}, at::kInt, true);
  memcpy_and_sync(word.mutable_data_ptr(), from.const_data_ptr(), 4, D2H);
}
at::Scalar local_scalar_dense(const Tensor& self) {
  Tensor word = at::detail::empty_cpu({1}, self.scalar_type(), true);
  memcpy_and_sync(word.mutable_data_ptr(), self.const_data_ptr(), self.element_size(), D2H);
  return at::_local_scalar_dense(word);
}

// How many elements are not zero cannot be known here: every second one.
Tensor nonzero(const Tensor& self) {
  static const char *count = interned("void at::cuda::cub::DeviceReduceKernel<nonzero>"),
                    *pick = interned("void at::cuda::cub::DeviceSelectSweepKernel<nonzero>"),
                    *write = interned("void at::native::write_indices<nonzero>");
  auto bytes = static_cast<double>(self.numel() * self.element_size());
  launch(passing(count, bytes));
  Tensor number = fresh({1}, {1}, at::kLong);
  read_count(number);
  Tensor made = fresh({(self.numel() + 1) / 2, self.dim()}, {1, (self.numel() + 1) / 2}, at::kLong);
  launch(passing(pick, 2 * bytes));
  if (self.dim() > 1) launch(passing(write, bytes));
  return made;
}
Tensor masked_select(const Tensor& self, const Tensor& mask) {
  auto both = at::expand_outplace(self, mask);
  return at::index(*std::get<0>(both), {*std::get<1>(both)});
}
bool equal(const Tensor& self, const Tensor& other) {
  return self.sizes().equals(other.sizes()) && at::eq(self, other).all().item().toBool();
}

// Masks become indices (the host waits for their number), indices of the CPU are copied.
c10::List<std::optional<Tensor>> on_device(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  c10::List<std::optional<Tensor>> made;
  for (const std::optional<Tensor>& one : indices) {
    if (!one.has_value() || !one->defined()) {
      made.push_back(std::nullopt);
    } else if (one->scalar_type() == at::kBool || one->scalar_type() == at::kByte) {
      Tensor where = at::nonzero(*one);
      for (int64_t d = 0; d < one->dim(); d++) made.push_back(where.select(1, d).to(self.device()));
    } else {
      made.push_back(one->to(self.device()));
    }
  }
  return made;
}
Tensor index(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::index", "Tensor");
  Stack stack{self, on_device(self, indices)};
  fallback(op, kCuda, &stack);
  return stack[0].toTensor();
}
Tensor& index_put(Tensor& self, const c10::List<std::optional<Tensor>>& indices, const Tensor& values, bool add,
                  bool unsafe) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_index_put_impl_", "");
  Tensor there = values.is_cpu() && values.dim() > 0 ? values.to(self.device()) : values;
  Stack stack{self, on_device(self, indices), there, add, unsafe};
  fallback(op, kCuda, &stack);
  return self;
}
void record_stream(Tensor&, c10::Stream) {}
TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("alias", TORCH_FN(at::native::alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("nonzero", nonzero);
  m.impl("masked_select", masked_select);
  m.impl("equal", equal);
  m.impl("index.Tensor", index);
  m.impl("_index_put_impl_", index_put);
  m.impl("record_stream", record_stream);
  // These have kernels of their own for CUDA, where other devices fall back to several operations.
  auto own = [&m](const std::string& name) {
    m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
  };
  for (const char* name : {"convolution", "convolution_backward", "native_layer_norm", "native_group_norm"}) own(name);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
    if (name.name.rfind("aten::_foreach_", 0) == 0 && name.overload_name.find("out") == std::string::npos)
      own(name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name));
}

} // namespace
} // namespace shim
