/* begets FOLDER: makes calls in two threads from when the file `begin` exists until `stop` does; at `beget` it starts
 * another program, which makes its calls from `go` on. Both say how many they made.
 *
 * One of the threads always waits for a kernel of 200 ms: whatever happens meanwhile, a call is under way. */
#include "support.h"

static void kernel(void) {}
static int (*launch)(const void *, dim3, dim3, void **, size_t, void *), (*synchronize)(void *);
static int (*create_stream)(void **, unsigned);
static char folder[256];

static const char *file(const char *name) {
  static __thread char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static long step(void *stream, uint64_t ns) {
  void *arguments[] = {&ns};
  must(launch((void *)kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, stream) == 0, "launch");
  must(synchronize(stream) == 0, "synchronize");
  return 1;
}

static void *until_stop(void *ns) {
  long rounds = 0;
  void *stream;
  must(create_stream(&stream, 1) == 0, "stream");
  while (access(file("stop"), F_OK) != 0) {
    rounds += step(stream, (uint64_t)ns);
    usleep(200); /* it leaves a CPU to who observes it */
  }
  return (void *)rounds;
}

int main(int argc, char **argv) {
  const char *library = "libcudart.so.12";
  void *stream, *rounds[2];
  pthread_t threads[2];
  long made = 0;
  if (argc < 2) return 2;
  snprintf(folder, sizeof folder, "%s", argv[1]);
  *(void **)&launch = function(library, "cudaLaunchKernel");
  *(void **)&synchronize = function(library, "cudaStreamSynchronize");
  *(void **)&create_stream = function(library, "cudaStreamCreateWithFlags");
  if (argc > 2) { /* the other program */
    say("{\"pid\": %d, \"child\": true}\n", getpid());
    await(file("go"));
    must(create_stream(&stream, 1) == 0, "stream");
    while (made < 200) made += step(stream, 1000);
    say("{\"pid\": %d, \"child\": true, \"made\": %ld}\n", getpid(), made);
    return 0;
  }
  must(create_stream(&stream, 1) == 0, "stream");
  say("{\"pid\": %d}\n", getpid());
  await(file("begin"));
  pthread_create(&threads[0], NULL, until_stop, (void *)1000);
  pthread_create(&threads[1], NULL, until_stop, (void *)200000000);
  await(file("beget"));
  pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", argv[0], argv[1], "child", NULL);
    _exit(1);
  }
  waitpid(child, NULL, 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], &rounds[i]);
  say("{\"pid\": %d, \"short\": %ld, \"long\": %ld}\n", getpid(), (long)rounds[0], (long)rounds[1]);
  return 0;
}
