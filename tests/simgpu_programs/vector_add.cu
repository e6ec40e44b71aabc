// An ordinary CUDA program: nothing in it knows of the simulation.
#include <cstdio>
#include <cuda_runtime.h>

__constant__ float factor;

__global__ void add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + factor * b[i];
}

__global__ void simgpu_last_for(unsigned long long ns) { (void)ns; }

#define CHECK(call)                                                    \
  do {                                                                 \
    cudaError_t error = (call);                                        \
    if (error != cudaSuccess) {                                        \
      std::printf("%s: %s\n", #call, cudaGetErrorString(error));       \
      return 1;                                                        \
    }                                                                  \
  } while (0)

int main() {
  const int n = 1024;
  float host[n], back[n], one = 1, *a, *b, *c;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  cudaDeviceProp properties;
  float ms = 0;
  for (int i = 0; i < n; i++) host[i] = i;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  CHECK(cudaMalloc(&a, sizeof host));
  CHECK(cudaMalloc(&b, sizeof host));
  CHECK(cudaMalloc(&c, sizeof host));
  CHECK(cudaMemcpyToSymbol(factor, &one, sizeof one));
  CHECK(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  // while it runs all that follows is queued: no delay of the host comes between the two events
  simgpu_last_for<<<1, 1, 0, stream>>>(200000000ull);
  CHECK(cudaEventRecord(begin, stream));
  for (int i = 0; i < 10; i++) add<<<n / 256, 256, 0, stream>>>(a, b, c, n);
  simgpu_last_for<<<1, 1, 0, stream>>>(5000000ull);
  CHECK(cudaEventRecord(end, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaEventElapsedTime(&ms, begin, end));
  CHECK(cudaMemcpy(back, a, sizeof back, cudaMemcpyDeviceToHost));
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  std::printf("%s %d.%d %d %zu %.3f %d\n", properties.name, properties.major, properties.minor,
              properties.multiProcessorCount, properties.totalGlobalMem, ms, back[17] == 17);
  return 0;
}
