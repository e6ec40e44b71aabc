// Device memory as the caching allocator takes it, and pinned memory by PyTorch's own host allocator.
#include "runtime.h"

#include <ATen/core/CachingHostAllocator.h>

#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace shim {
namespace {

constexpr size_t kLeast = 512, kSmall = 1 << 20, kSmallSegment = 2 << 20, kLargeSegment = 20 << 20,
                 kOwnSegment = 10 << 20, kRound = 2 << 20;

struct Block {
  char* at;
  size_t size;
  void* stream;
  bool small, used;
  Block *before, *after; // in the same segment
};

struct Smaller {
  bool operator()(const Block* a, const Block* b) const {
    return std::tie(a->stream, a->size, a->at) < std::tie(b->stream, b->size, b->at);
  }
};

// Sizes and rounding of c10/cuda/CUDACachingAllocator.cpp.
class Cache {
 public:
  Block* take(size_t asked) {
    size_t size = std::max(kLeast, (asked + kLeast - 1) / kLeast * kLeast);
    std::lock_guard<std::mutex> lock(mutex_);
    bool small = size <= kSmall;
    Block key{nullptr, size, current_stream(), small, false, nullptr, nullptr};
    auto& pool = pools_[small];
    auto found = pool.lower_bound(&key);
    Block* block;
    if (found != pool.end() && (*found)->stream == key.stream) {
      block = *found;
      pool.erase(found);
    } else {
      block = segment(size, small);
    }
    size_t rest = block->size - size;
    if (small ? rest >= kLeast : rest > kSmall) {
      auto* other = new Block{block->at + size, rest, block->stream, small, false, block, block->after};
      if (block->after) block->after->before = other;
      block->after = other;
      block->size = size;
      pool.insert(other);
    }
    block->used = true;
    used_ += block->size;
    return block;
  }

  void give(Block* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    used_ -= block->size;
    block->used = false;
    auto& pool = pools_[block->small];
    for (Block* beside : {block->before, block->after}) {
      if (beside == nullptr || beside->used) continue;
      pool.erase(beside);
      Block *first = beside == block->before ? beside : block, *second = first == block ? beside : block;
      first->size += second->size;
      first->after = second->after;
      if (second->after) second->after->before = first;
      delete second;
      block = first;
    }
    pool.insert(block);
  }

  void empty() {
    std::lock_guard<std::mutex> lock(mutex_);
    release();
  }

 private:
  Block* segment(size_t size, bool small) {
    size_t bytes = small ? kSmallSegment : size < kOwnSegment ? kLargeSegment : (size + kRound - 1) / kRound * kRound;
    void* at = nullptr;
    if (runtime().allocate(&at, bytes) != 0) {
      runtime().last_error();
      release();
      check(runtime().allocate(&at, bytes), "out of memory: cudaMalloc");
    }
    return new Block{static_cast<char*>(at), bytes, current_stream(), small, false, nullptr, nullptr};
  }

  void release() {
    for (auto& pool : pools_) {
      for (auto it = pool.begin(); it != pool.end();) {
        Block* block = *it;
        if (block->before || block->after) {
          ++it;
          continue;
        }
        check(runtime().release(block->at), "cudaFree");
        it = pool.erase(it);
        delete block;
      }
    }
  }

  std::mutex mutex_;
  std::set<Block*, Smaller> pools_[2];
  size_t used_ = 0;
};

Cache& cache() {
  static Cache* made = new Cache; // outlives every tensor
  return *made;
}

void give_back(void* context) {
  if (context != nullptr) cache().give(static_cast<Block*>(context));
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::Device device(c10::DeviceType::CUDA, 0);
    if (bytes == 0) return {nullptr, nullptr, &give_back, device};
    Block* block = cache().take(bytes);
    return {block->at, block, &give_back, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dst, const void* src, size_t bytes) const override {
    check(runtime().copy(dst, src, bytes, D2D, current_stream()), "cudaMemcpyAsync");
  }
};

using Event = void*;
using Pinned = at::CachingHostAllocatorImpl<c10::Stream, Event>;

// The hooks of PyTorch's own host allocator, filled as ATen/cuda/CachingHostAllocator.cpp does.
struct PinnedImpl : Pinned {
  void allocate_host_memory(size_t size, void** ptr) override {
    check(runtime().host_allocate(ptr, size, 0), "cudaHostAlloc");
  }
  void free_block(at::HostBlock<c10::Stream>* block) override {
    check(runtime().host_release(block->ptr_), "cudaFreeHost");
  }
  void record_stream(std::optional<std::vector<Event>>& events, c10::Stream stream) override {
    constexpr unsigned kDisableTiming = 2;
    Event event = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!unused_.empty()) {
        event = unused_.back();
        unused_.pop_back();
      }
    }
    if (event == nullptr) check(runtime().create_event(&event, kDisableTiming), "cudaEventCreateWithFlags");
    check(runtime().record(event, as_handle(stream), 0), "cudaEventRecordWithFlags");
    events->push_back(event);
  }
  bool query_event(Event& event) override {
    if (runtime().query_event(event) != 0) {
      runtime().last_error();
      return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    unused_.push_back(event);
    return true;
  }
  c10::Stream get_current_stream() const override { return as_stream(current_stream()); }
  bool stream_is_capturing(c10::Stream) const override { return capturing(); }

 private:
  std::mutex mutex_;
  std::vector<Event> unused_;
};

DECLARE_HOST_ALLOCATOR(PinnedAllocator, PinnedImpl, give_back_pinned, pinned_instance)
REGISTER_HOST_ALLOCATOR(at::kCUDA, &pinned_instance)

} // namespace

c10::Allocator* device_allocator() {
  static DeviceAllocator allocator;
  return &allocator;
}

c10::Allocator* pinned_allocator() { return &pinned_instance; }

bool record_pinned(const c10::DataPtr& data) {
  return pinned_instance.record_event(data.get(), data.get_context(), as_stream(current_stream()));
}

bool is_pinned(const void* data) {
  struct {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
  } told{};
  if (runtime().attributes(&told, data) != 0) {
    runtime().last_error();
    return false;
  }
  return told.type == 1;
}

void empty_cache() { cache().empty(); }

} // namespace shim
