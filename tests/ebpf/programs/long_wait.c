/* long_wait: two threads wait a minute for the device, one spinning in each way of waiting. */
#include "support.h"

static int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
static int (*wait_stream)(void *), (*wait_device)(void);

static void kernel(void) {}

static void *stream_waiter(void *unused) {
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
  say("{\"pid\": %d}\n", getpid());
  return wait_device();
}
