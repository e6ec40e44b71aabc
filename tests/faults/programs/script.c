/* script FILE: runs the script. The diaries go to $FAULTS_DIARY/TID, a line an entry: label from to cpu queued what. */
#include "script.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct role roles[MOST_ROLES];
int role_count, channels[MOST_CHANNELS][2];
volatile int *over;
__thread struct diary diary;
__thread struct role *me;

void note(uint64_t from, uint64_t to, uint64_t cpu, uint64_t queued, const char *label, const char *what) {
  if (diary.count == diary.room) {
    diary.room = diary.room ? 2 * diary.room : 4096;
    diary.at = realloc(diary.at, diary.room * sizeof *diary.at);
    must(diary.at != NULL, "memory");
  }
  diary.at[diary.count++] = (struct entry){from, to, cpu, queued, label, what};
}

/* How long the calling thread has waited in run queues. */
static uint64_t run_delay(void) {
  static __thread int fd = -1;
  char text[128] = "";
  if (fd < 0) fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  must(fd >= 0 && pread(fd, text, sizeof text - 1, 0) > 0, "schedstat");
  return strtoull(strchr(text, ' '), NULL, 10);
}

static void write_diary(uint64_t began, uint64_t delay_before) {
  uint64_t delay = run_delay();
  char path[512];
  const char *directory = getenv("FAULTS_DIARY");
  if (directory == NULL) return;
  snprintf(path, sizeof path, "%s/%d", directory, (int)syscall(SYS_gettid));
  FILE *file = fopen(path, "w");
  must(file != NULL, "diary");
  fprintf(file, "role %s %s %d %d %llu %llu %d\n", me->name, me->queue, getpid(), (int)syscall(SYS_gettid),
          (unsigned long long)(now_ns(CLOCK_MONOTONIC) - began), (unsigned long long)(delay - delay_before), me->rounds);
  for (size_t i = 0; i < diary.count; i++) {
    const struct entry *e = &diary.at[i];
    fprintf(file, "%s %llu %llu %llu %llu %s\n", e->label, (unsigned long long)e->from, (unsigned long long)e->to,
            (unsigned long long)e->cpu, (unsigned long long)e->queued, e->what);
  }
  fclose(file);
}

static void run_op(const struct op *op) {
  uint64_t queued = op->timed ? run_delay() : 0, cpu = now_ns(CLOCK_THREAD_CPUTIME_ID), from = now_ns(CLOCK_MONOTONIC);
  size_t before = diary.count;
  must(cuda_op(op) || host_op(op), op->name);
  uint64_t to = now_ns(CLOCK_MONOTONIC);
  cpu = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
  note(from, to, cpu, op->timed ? run_delay() - queued : 0, op->label, op->name);
  if (diary.count == before + 1) return;
  /* what the operation noted inside itself is painted over it: last */
  struct entry whole = diary.at[diary.count - 1];
  memmove(diary.at + before + 1, diary.at + before, (diary.count - 1 - before) * sizeof whole);
  diary.at[before] = whole;
}

/* Whether a loop goes on: the main role's outermost until the time is over, all others until that role ended. */
static int goes_on(struct role *role, const struct op *loop, long left) {
  const char *limit = getenv("FAULTS_LIMIT_MS");
  if (loop->depth == 0) role->rounds++;
  if (role == &roles[0] && loop->depth == 0 && limit != NULL &&
      now_ns(CLOCK_MONOTONIC) - role->since > strtoull(limit, NULL, 10) * 1000000)
    return 0;
  return !*over && (loop->a[0] == 0 || left > 0);
}

static void run_role(struct role *role) {
  long left[MOST_OPS] = {0};
  uint64_t began = now_ns(CLOCK_MONOTONIC);
  cpu_set_t set;
  me = role;
  role->since = began;
  CPU_ZERO(&set);
  if (role->cpu >= 0) CPU_SET(role->cpu, &set), must(sched_setaffinity(0, sizeof set, &set) == 0, "affinity");
  if (role->nice != 0) must(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + role->nice) == 0, "nice");
  uint64_t delay = run_delay();
  for (int i = 0; i < role->count; i++) {
    struct op *op = &role->ops[i];
    if (strcmp(op->name, "loop") == 0) {
      left[i] = op->a[0];
    } else if (strcmp(op->name, "end") == 0) {
      if (goes_on(role, &role->ops[op->partner], --left[op->partner])) i = op->partner;
    } else {
      run_op(op);
    }
  }
  write_diary(began, delay);
}

static void *run_thread(void *role) {
  run_role(role);
  return NULL;
}

static void read_op(struct role *role, const char *line, int *open_loops, int *depth) {
  struct op *op = &role->ops[role->count];
  must(role->count < MOST_OPS, "too many operations");
  must(sscanf(line, "%31s %15s", op->label, op->name) == 2, line);
  if (sscanf(line, "%*s %*s %ld %ld %ld", &op->a[0], &op->a[1], &op->a[2]) >= 2)
    sscanf(line, "%*s %*s %*d %*d %15s", op->text);
  op->timed = strstr(" launch burn hold sync devsync evsync record query evquery waitev d2h sleep ", op->name) == NULL ||
              op->label[0] == '@';
  if (strcmp(op->name, "loop") == 0) {
    op->depth = *depth;
    open_loops[(*depth)++] = role->count;
  } else if (strcmp(op->name, "end") == 0) {
    op->partner = open_loops[--*depth];
  }
  role->count++;
}

static void read_script(const char *path) {
  char line[256];
  int open_loops[8], depth = 0;
  FILE *file = fopen(path, "r");
  must(file != NULL, path);
  while (fgets(line, sizeof line, file) != NULL) {
    struct role *role = &roles[role_count];
    if (strncmp(line, "role ", 5) == 0) {
      must(sscanf(line, "role %23s %11s %23s %d %d", role->name, role->kind, role->queue, &role->cpu, &role->nice) == 5,
           line);
      role_count++;
    } else if (line[0] != '\n') {
      read_op(&roles[role_count - 1], line, open_loops, &depth);
    }
  }
  fclose(file);
}

static void wake(int number) { (void)number; }

/* Gives the other roles the time of a round to write what they did; a signal ends the wait for the main role. */
static void end_roles(pthread_t *threads, pid_t *children) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  for (int i = 1; i < role_count; i++) {
    if (strcmp(roles[i].kind, "thread") == 0) pthread_timedjoin_np(threads[i], NULL, &until);
    for (int tries = 0; children[i] > 0 && waitpid(children[i], NULL, WNOHANG) == 0; tries++) {
      kill(children[i], tries > 1000 ? SIGKILL : SIGUSR1);
      usleep(1000);
    }
  }
}

int main(int argc, char **argv) {
  pthread_t threads[MOST_ROLES];
  pid_t children[MOST_ROLES] = {0};
  must(argc == 2, "usage: script FILE");
  read_script(argv[1]);
  struct sigaction action = {.sa_handler = wake}; /* no SA_RESTART */
  sigaction(SIGUSR1, &action, NULL);
  over = mmap(NULL, sizeof *over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  must(over != MAP_FAILED, "mmap");
  for (int i = 0; i < MOST_CHANNELS; i++) must(pipe2(channels[i], O_CLOEXEC) == 0, "pipe");
  for (int i = 1; i < role_count; i++)
    if (strcmp(roles[i].kind, "process") == 0 && (children[i] = fork()) == 0) {
      /* as PyTorch names the workers of its DataLoader */
      prctl(PR_SET_NAME, strcmp(roles[i].name, "loader") == 0 ? "pt_data_worker" : roles[i].name);
      run_role(&roles[i]);
      exit(0);
    }
  cuda_begin();
  for (int i = 1; i < role_count; i++)
    if (strcmp(roles[i].kind, "thread") == 0)
      must(pthread_create(&threads[i], NULL, run_thread, &roles[i]) == 0, "thread");
  run_role(&roles[0]);
  *over = 1;
  end_roles(threads, children);
  return 0;
}
