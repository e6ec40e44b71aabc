/* switches MODE THREADS: threads that the scheduler treats in different ways; each says at its very end what the
 * kernel counted of it. MODE: sleep spin fight migrate yield talk process. */
#include "support.h"

#include <sys/mman.h>

#define MOST 16
#define TALKS 2000
#define RUN_NS 600000000ull

struct account {
  int pid, tid;
  long voluntary, involuntary;
  unsigned long long run_delay, cpu;
};

static struct account *accounts; /* shared with children */
static const char *mode;
static int ring[MOST][2], threads;

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  must(sched_setaffinity(0, sizeof set, &set) == 0, "affinity");
}

/* What the kernel counted of the calling thread until now. */
static void take_stock(struct account *a, int status, int schedstat) {
  char text[4096];
  long n;
  struct timespec moment = {0, 1000};
  nanosleep(&moment, NULL); /* a fresh time slice: what follows is seldom interrupted */
  n = pread(status, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = '\0';
  n = strstr(text, "\nvoluntary_ctxt_switches:") ? 1 : 0;
  must(n, "status");
  a->voluntary = atol(strstr(text, "\nvoluntary_ctxt_switches:") + 25);
  a->involuntary = atol(strstr(text, "\nnonvoluntary_ctxt_switches:") + 28);
  n = pread(schedstat, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = '\0';
  must(sscanf(text, "%*u %llu", &a->run_delay) == 1, "schedstat");
  a->cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
  a->pid = getpid(), a->tid = thread_id();
}

static void burn(uint64_t ns) {
  uint64_t end = now_ns(CLOCK_MONOTONIC) + ns;
  while (now_ns(CLOCK_MONOTONIC) < end) {}
}

static void rest(long ns) {
  struct timespec t = {0, ns};
  nanosleep(&t, NULL);
}

static void act(int number) {
  uint64_t end = now_ns(CLOCK_MONOTONIC) + RUN_NS;
  int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
  char byte = 0;
  if (strcmp(mode, "fight") == 0) pin(0);
  int talks = strcmp(mode, "talk") == 0;
  for (long turn = 0; talks ? turn < TALKS : now_ns(CLOCK_MONOTONIC) < end; turn++) {
    if (strcmp(mode, "sleep") == 0) {
      burn(200000), rest(2000000);
    } else if (strcmp(mode, "migrate") == 0) {
      pin((int)(turn + number) % cpus), burn(1000000);
      if (turn % 3 == 0) rest(200000);
    } else if (strcmp(mode, "yield") == 0) {
      burn(20000), sched_yield();
    } else if (talks) {
      must(write(ring[(number + 1) % threads][1], &byte, 1) == 1 && read(ring[number][0], &byte, 1) == 1, "pipe");
    } else {
      burn(2000000);
    }
  }
}

static void *work(void *argument) {
  int number = (int)(long)argument;
  int status = open("/proc/thread-self/status", O_RDONLY), schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
  must(status >= 0 && schedstat >= 0, "proc");
  act(number);
  take_stock(&accounts[number], status, schedstat);
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t running[MOST];
  pid_t hogs[3] = {0};
  if (argc < 3 || (threads = atoi(argv[2])) > MOST) return 2;
  mode = argv[1];
  accounts = mmap(NULL, MOST * sizeof *accounts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < threads; i++) must(pipe(ring[i]) == 0, "pipe");
  for (int i = 0; i < 3 && strcmp(mode, "fight") == 0; i++) {
    if ((hogs[i] = fork()) != 0) continue;
    pin(0);
    for (;;) {}
  }
  if (strcmp(mode, "process") == 0) {
    for (long i = 0; i < threads; i++)
      if (fork() == 0) work((void *)i), _exit(0);
    while (wait(NULL) > 0) {}
  } else {
    for (long i = 0; i < threads; i++) pthread_create(&running[i], NULL, work, (void *)i);
    for (int i = 0; i < threads; i++) pthread_join(running[i], NULL);
  }
  for (int i = 0; i < 3; i++)
    if (hogs[i] != 0) kill(hogs[i], SIGKILL), waitpid(hogs[i], NULL, 0);
  for (int i = 0; i < threads; i++)
    say("{\"pid\": %d, \"tid\": %d, \"voluntary\": %ld, \"involuntary\": %ld, \"run_delay\": %llu, \"cpu\": %llu}\n",
        accounts[i].pid, accounts[i].tid, accounts[i].voluntary, accounts[i].involuntary, accounts[i].run_delay, accounts[i].cpu);
  return 0;
}
