// native_swap ROUNDS NEXT LIBRARY...: libraries that come and go at one address, a fork, and another program.
//
// Compiled with -DPROGRAM=name it calls the device from that function, then from `work::WORKER(int)` of each
// library, unloading each before the next is loaded, then in a fork, and becomes NEXT unless that is "-".
// Compiled with -DWORKER=name it is such a library; with -DLINKED it finds the device by itself.
#include "support.h"

extern "C" int (*synchronize)(void);

#ifdef WORKER
#ifdef LINKED
int (*synchronize)(void);
__attribute__((constructor)) static void find() {
  *reinterpret_cast<void **>(&synchronize) = function("libcudart.so.12", "cudaDeviceSynchronize");
}
#endif

namespace work {
__attribute__((noinline)) int WORKER(int rounds) {
  int sum = 0;
  for (int round = 0; round < rounds; round++) sum += synchronize() + 1;
  return sum;
}
}  // namespace work

extern "C" int enter(int rounds) { return work::WORKER(rounds) + 1; }
#else
int (*synchronize)(void);

extern "C" __attribute__((noinline)) int PROGRAM(int rounds) {
  int sum = 0;
  for (int round = 0; round < rounds; round++) sum += synchronize() + 1;
  return sum;
}

int main(int argc, char **argv) {
  int rounds = atoi(argv[1]), status;
  char places[512] = "", *to = places;
  *(void **)&synchronize = function("libcudart.so.12", "cudaDeviceSynchronize");
  must(PROGRAM(rounds) == rounds, "rounds");
  for (int place = 3; place < argc; place++) {
    void *library = dlopen(argv[place], RTLD_NOW), *found = library ? dlsym(library, "enter") : nullptr;
    must(found != nullptr, "library");
    to += sprintf(to, "%s%ld", place > 3 ? ", " : "", (long)found);
    must(reinterpret_cast<int (*)(int)>(found)(rounds * place) == rounds * place + 1, "rounds");
    dlclose(library);
  }
  pid_t child = fork();
  if (child == 0) {
    PROGRAM(rounds * 2);
    _exit(0);
  }
  must(waitpid(child, &status, 0) == child && status == 0, "child");
  say("{\"pid\": %d, \"child\": %d, \"places\": [%s]}\n", getpid(), child, places);
  if (strcmp(argv[2], "-") != 0) {
    argv[0] = argv[2];
    argv[2] = const_cast<char *>("-");
    execv(argv[0], argv);
  }
  return 0;
}
#endif
