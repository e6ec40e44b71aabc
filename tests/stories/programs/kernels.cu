// Compiled by nvcc, linked with the shared runtime: kernels KIND before|after, with kernels of its own.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

static const int SIZE = 1 << 20;
static bool before;
static float *device;
static std::vector<float> host(SIZE);

__global__ void scale(float *values, float by) {
    values[blockIdx.x * blockDim.x + threadIdx.x] *= by;
}

static long long now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

__attribute__((noinline)) void simulate() {
    volatile double x = 0;
    for (long long end = now() + (before ? 12000000 : 10000); now() < end;)
        for (int i = 0; i < 1000; i++)
            x = x + i;
}

static void work() {
    for (int i = 0; i < 20; i++)
        scale<<<SIZE / 256, 256>>>(device, 1.0001f);
    cudaDeviceSynchronize();
}

// what the GPU works on comes from a thread of its own
static std::mutex lock;
static std::condition_variable changed;
static int asked, given;
static std::atomic<bool> over;

static void produce() {
    std::unique_lock<std::mutex> held(lock);
    while (!over) {
        changed.wait(held, [] { return asked > given; });
        held.unlock();
        simulate();
        held.lock();
        given = asked;
        changed.notify_all();
    }
}

static void next() {
    std::unique_lock<std::mutex> held(lock);
    asked++;
    changed.notify_all();
    changed.wait(held, [] { return given == asked; });
}

__attribute__((noinline)) void send_all() {
    for (int i = 0; i < (before ? 8 : 0); i++)
        cudaMemcpy(device, host.data(), SIZE * sizeof(float), cudaMemcpyHostToDevice);
}

int main(int, char **arguments) {
    std::string kind = arguments[1];
    before = !strcmp(arguments[2], "before");
    cudaMalloc(&device, SIZE * sizeof(float));
    std::thread other;
    if (kind == "thread")
        other = std::thread(produce);
    const char *seconds = getenv("SECONDS");
    long long began = now(), units = 0, limit = 1e9 * (seconds ? atof(seconds) : 5);
    for (long long number = 0; number < 6 || now() - began < limit; number++) {
        if (number == 5)
            began = now();
        units += number >= 5;
        if (kind == "host")
            simulate();
        if (kind == "thread")
            next();
        if (kind == "copies")
            send_all();
        work();
    }
    long long ended = now();
    printf("{\"units\": %lld, \"ns\": %lld, \"warm_up\": 5, \"began\": %lld, \"ended\": %lld, \"pid\": %d}\n", units,
           ended - began, began, ended, getpid());
    fflush(stdout);
    _exit(0);
}
