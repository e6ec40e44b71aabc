/* long_wait: two threads wait a minute for the device and spin, one in each way of waiting; each says before its wait
 * who it is, and when that was. */
#include "support.h"

static int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
static int (*wait_stream)(void *), (*wait_device)(void);

static void kernel(void) {}

static void waits(void) {
  say("{\"pid\": %d, \"tid\": %d, \"ns\": %lu}\n", getpid(), thread_id(), now_ns(CLOCK_MONOTONIC));
}

static void *stream_waiter(void *unused) {
  waits();
  wait_stream(NULL);
  return unused;
}

int main(void) {
  pthread_t thread;
  uint64_t minute = 60000000000;
  void *arguments[] = {&minute};
  *(void **)&launch = function("libcudart.so.12", "cudaLaunchKernel");
  *(void **)&wait_stream = function("libcudart.so.12", "cudaStreamSynchronize");
  *(void **)&wait_device = function("libcudart.so.12", "cudaDeviceSynchronize");
  must(launch((void *)kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, NULL) == 0, "launch");
  pthread_create(&thread, NULL, stream_waiter, NULL);
  waits();
  return wait_device();
}
