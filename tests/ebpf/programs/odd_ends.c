/* odd_ends CASE ROUNDS: calls that do not return in the ordinary way, each followed by ordinary ones. */
#include <setjmp.h>

#include "support.h"

extern int cudaMalloc(void **, size_t), cudaFree(void *), cudaStreamQuery(void *);
extern int cuMemAlloc_v2(void **, size_t);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                          void **);
extern int fake_result;

#define STREAM 0x1000

static __thread jmp_buf target;
static void (**hook)(void);
static int mallocs, frees, queries, direct, launches;

static void jump(void) { longjmp(target, 1); }
static void leave(void) { pthread_exit(NULL); }

static __attribute__((noinline)) void ordinary_calls(void) {
  void *p;
  *hook = NULL;
  for (int i = 0; i < 3; i++) mallocs++, cudaMalloc(&p, 64), frees++, cudaFree(p);
}

/* Deeper in the stack than the call that was left, over what lay there. */
static __attribute__((noinline)) void deeper(void) {
  volatile char room[4096];
  memset((void *)room, 0x55, sizeof room);
  ordinary_calls();
  room[0] = room[1];
}

static __attribute__((noinline)) void out_of_a_call(void) {
  void *p;
  *hook = jump;
  if (setjmp(target) == 0) mallocs++, cudaMalloc(&p, 64);
}

static void *thread_that_leaves(void *unused) {
  void *p;
  mallocs++, cudaMalloc(&p, 64);
  return unused;
}

static void launch(size_t times) {
  dim3 one = {1, 1, 1};
  launches++, cudaLaunchKernel((void *)times, one, one, NULL, 0, (void *)STREAM);
}

static void *thread_that_leaves_a_launch(void *unused) {
  launch(1);
  return unused;
}

/* A launch with one of the driver's, with none, with two, with one that fails; the driver's by itself; one that is left. */
static void launches_of(void) {
  pthread_t thread;
  *hook = NULL;
  launch(1), launch(0), launch(2);
  fake_result = 719;
  launch(1);
  fake_result = 0;
  direct++, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  *hook = jump;
  if (setjmp(target) == 0) launch(1);
  launch(0);
  *hook = leave;
  pthread_create(&thread, NULL, thread_that_leaves_a_launch, NULL);
  pthread_join(thread, NULL);
}

static void round_of(const char *what) {
  pthread_t thread;
  void *p;
  if (strcmp(what, "longjmp") == 0) {
    out_of_a_call();
    ordinary_calls();
  } else if (strcmp(what, "deeper") == 0) {
    out_of_a_call();
    deeper();
  } else if (strcmp(what, "exit") == 0) {
    *hook = leave;
    pthread_create(&thread, NULL, thread_that_leaves, NULL);
    pthread_join(thread, NULL);
    ordinary_calls();
  } else if (strcmp(what, "launch") == 0) {
    launches_of();
  } else if (strcmp(what, "tail") == 0) {
    queries++, cudaStreamQuery(NULL);
  } else {
    ordinary_calls();
    direct++, cuMemAlloc_v2(&p, 64);
    direct++, cuMemAlloc_v2(&p, 64);
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  hook = function("libcudart.so.12", "fake_hook"); /* both libraries use this one */
  for (int i = 0; i < atoi(argv[2]); i++) round_of(argv[1]);
  say("{\"pid\": %d, \"mallocs\": %d, \"frees\": %d, \"queries\": %d, \"direct\": %d, \"launches\": %d}\n", getpid(),
      mallocs, frees, queries, direct, launches);
  return 0;
}
