// A program without Python: native KIND before|after. Its own threads or another process hold the GPU up.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>

struct Dim3 {
    unsigned x = 64, y = 1, z = 1;
};
extern "C" int cudaLaunchKernel(const void *, Dim3, Dim3, void **, size_t, void *);
extern "C" int cudaStreamSynchronize(void *);

static bool before;
static volatile bool over;

static int64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void step() {
    static uint64_t ns = 50000;
    void *arguments[] = {&ns};
    for (int i = 0; i < 20; i++)
        cudaLaunchKernel(&ns, Dim3(), Dim3(), arguments, 0, nullptr);
    cudaStreamSynchronize(nullptr);
}

__attribute__((noinline)) void simulate() {
    volatile double x = 0;
    for (int64_t end = now() + (before ? 12000000 : 10000); now() < end;)
        for (int i = 0; i < 1000; i++)
            x = x + i;
}

static std::mutex lock;

static void hold() {
    while (!over) {
        {
            std::lock_guard<std::mutex> held(lock);
            simulate();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

static std::condition_variable changed;
static int asked, given;

static void produce() {
    std::unique_lock<std::mutex> held(lock);
    while (!over) {
        changed.wait(held, [] { return asked > given || over; });
        held.unlock();
        simulate();
        held.lock();
        given = asked;
        changed.notify_all();
    }
}

static int to[2], from[2];

static void child() {
    for (char one; read(to[0], &one, 1) == 1;) {
        simulate();
        if (write(from[1], &one, 1) != 1)
            return;
    }
}

int main(int, char **arguments) {
    std::string kind = arguments[1];
    before = !strcmp(arguments[2], "before");
    if (kind == "pipe") {
        if (pipe(to) || pipe(from))
            return 1;
        if (!fork()) {
            close(to[1]);
            child();
            _exit(0);
        }
    }
    std::thread other;
    if (kind == "mutex")
        other = std::thread(hold);
    if (kind == "condition")
        other = std::thread(produce);
    const char *seconds = getenv("SECONDS");
    int64_t began = now(), units = 0, limit = 1e9 * (seconds ? atof(seconds) : 5);
    for (int64_t number = 0; number < 6 || now() - began < limit; number++) {
        if (number == 5)
            began = now();
        units += number >= 5;
        if (kind == "mutex")
            std::lock_guard<std::mutex> held(lock);
        if (kind == "condition") {
            std::unique_lock<std::mutex> held(lock);
            asked++;
            changed.notify_all();
            changed.wait(held, [] { return given == asked; });
        }
        if (kind == "pipe") {
            char one = 0;
            if (write(to[1], &one, 1) != 1 || read(from[0], &one, 1) != 1)
                return 1;
        }
        step();
    }
    int64_t ended = now();
    printf("{\"units\": %lld, \"ns\": %lld, \"warm_up\": 5, \"began\": %lld, \"ended\": %lld, \"pid\": %d}\n",
           (long long)units, (long long)(ended - began), (long long)began, (long long)ended, getpid());
    fflush(stdout);
    over = true;
    _exit(0);
}
