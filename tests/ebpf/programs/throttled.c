/* throttled GROUP SECONDS BUSY IDLE: one thread on one CPU that is busy and sleeps in turns (microseconds), in a group
 * of its own once it is there; says when it began and ended, and what the kernel counted of it. */
#include "support.h"

static long counted(const char *file, const char *name) {
  char text[4096], *found;
  int fd = open(file, O_RDONLY);
  long n = read(fd, text, sizeof text - 1);
  text[n > 0 ? n : 0] = '\0';
  close(fd);
  found = strstr(text, name);
  return found ? atol(found + strlen(name)) : 0;
}

/* How often this thread has left a CPU since it is there: also while it was not yet this program. */
static long switches(const char *name) { return counted("/proc/thread-self/status", name); }

int main(int count, char **arguments) {
  cpu_set_t set;
  char path[4096];
  must(count == 5, "usage: throttled GROUP SECONDS BUSY IDLE");
  uint64_t busy = 1000ull * strtoull(arguments[3], NULL, 10), begin, end, until;
  struct timespec idle = {0, 1000 * atol(arguments[4])};
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  must(sched_setaffinity(0, sizeof set, &set) == 0, "affinity");
  snprintf(path, sizeof path, "%s/cgroup.procs", arguments[1]);
  int fd = open(path, O_WRONLY);
  must(fd >= 0 && dprintf(fd, "%d\n", getpid()) > 0, "group");
  close(fd);
  uint64_t before = now_ns(CLOCK_THREAD_CPUTIME_ID); /* what became this program has had some, too */
  long preempted = switches("nonvoluntary_ctxt_switches:"), slept = switches("\nvoluntary_ctxt_switches:");
  begin = now_ns(CLOCK_MONOTONIC), end = begin + (uint64_t)(1e9 * atof(arguments[2]));
  while (now_ns(CLOCK_MONOTONIC) < end) {
    until = now_ns(CLOCK_MONOTONIC) + busy;
    while (now_ns(CLOCK_MONOTONIC) < until) {}
    if (idle.tv_nsec) nanosleep(&idle, NULL);
  }
  snprintf(path, sizeof path, "%s/cpu.stat", arguments[1]); /* of version 1 or 2; none of it behind the end is ours */
  long throttled = counted(path, "throttled_time ") + 1000 * counted(path, "throttled_usec ");
  uint64_t read_at = now_ns(CLOCK_MONOTONIC);
  preempted = switches("nonvoluntary_ctxt_switches:") - preempted;
  slept = switches("\nvoluntary_ctxt_switches:") - slept;
  say("{\"pid\": %d, \"tid\": %d, \"begin\": %lu, \"cpu\": %lu, \"cpu_before\": %lu, \"involuntary\": %ld, \"voluntary\": %ld, "
      "\"throttled\": %ld, \"read_at\": %lu, \"end\": %lu}\n",
      getpid(), thread_id(), begin, now_ns(CLOCK_THREAD_CPUTIME_ID) - before, before,
      preempted, slept, throttled, read_at, now_ns(CLOCK_MONOTONIC));
  return 0;
}
