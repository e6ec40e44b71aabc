// The calls of the CUDA runtime that PyTorch makes, and the streams of each thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "sg_private.h"

namespace shim {

enum Kind { H2D = 1, D2H = 2, D2D = 3 };

// A kernel as PyTorch would launch it. GEMMs are launched as cuBLAS does: it calls the driver itself.
struct Work {
  const char* name;
  bool library;
  sg_work work; // how long it lasts, what it uses of the device meanwhile
  bool clears = false; // a large reduction's blocks meet at counters, which are set to 0 before it
};

struct Runtime {
  int (*launch)(const void*, uint64_t, uint32_t, uint64_t, uint32_t, void**, size_t, void*);
  int (*copy)(void*, const void*, size_t, int, void*);
  int (*fill)(void*, int, size_t, void*);
  int (*sync_stream)(void*);
  int (*query_stream)(void*);
  int (*sync_device)();
  int (*create_stream)(void**, unsigned, int);
  int (*wait_event)(void*, void*, unsigned);
  int (*create_event)(void**, unsigned);
  int (*destroy_event)(void*);
  int (*record)(void*, void*, unsigned);
  int (*query_event)(void*);
  int (*sync_event)(void*);
  int (*elapsed)(float*, void*, void*);
  int (*allocate)(void**, size_t);
  int (*release)(void*);
  int (*host_allocate)(void**, size_t, unsigned);
  int (*host_release)(void*);
  int (*attributes)(void*, const void*);
  int (*free_memory)(size_t*, size_t*);
  int (*device_count)(int*);
  int (*get_device)(int*);
  int (*set_device)(int);
  int (*last_error)();
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch_graph)(void*, void*);
  int (*destroy_graph)(void*);
  int (*destroy_executable)(void*);
};

const Runtime& runtime();
void check(int code, const char* what);
void* current_stream();
void set_current_stream(void* stream);
c10::Stream as_stream(void* handle);
void* as_handle(const c10::Stream& stream);
void* stream_of_pool();
bool capturing();
void set_capturing(bool on);
void launch(const Work& work);
void memcpy_and_sync(void* dst, const void* src, size_t bytes, Kind kind);
c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);
bool record_pinned(const c10::DataPtr& data);
void empty_cache();
const char* interned(const std::string& name);
Work passing(const char* name, double bytes, double fixed_ns = 1500); // a pass over so much memory

} // namespace shim
