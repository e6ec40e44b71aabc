/* Operations on the host: burning CPU, waiting, moving data, files, memory, locks. */
#include "script.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "burn.h"

#define PAGE 4096
#define DIRECT (1 << 20)
#define PIECE (2 << 20)
#define WRITTEN (64 << 20)

static pthread_mutex_t mutexes[4] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                     PTHREAD_MUTEX_INITIALIZER};

static void burn(long ns) {
  static __thread uint64_t jumps[MOST_JUMPS][2];
  int count = burn_cpu((uint64_t)ns, jumps);
  for (int i = 0; i < count; i++) note(jumps[i][0], jumps[i][1], 0, 0, me->queue, "queue");
}

static void rest(long ns) {
  struct timespec t = {ns / 1000000000, ns % 1000000000};
  nanosleep(&t, NULL);
}

static void move(int fd, long bytes, int sending) {
  static __thread char *buffer;
  if (buffer == NULL) buffer = calloc(1, 64 << 20);
  for (long done = 0; done < bytes;) {
    if (*over) return; /* nobody is there any more */
    ssize_t n = sending ? write(fd, buffer + done, (size_t)(bytes - done)) : read(fd, buffer + done, (size_t)(bytes - done));
    if (*over) return;
    must(n > 0, sending ? "send" : "receive");
    done += n;
  }
}

static int open_file(int flags) {
  int fd = open(getenv("FAULTS_FILE"), flags | O_CLOEXEC);
  must(fd >= 0, "FAULTS_FILE");
  return fd;
}

static void read_direct(long bytes) {
  static __thread int fd;
  static __thread char *buffer;
  static __thread long at;
  struct stat facts;
  if (fd == 0) fd = open_file(O_RDONLY | O_DIRECT), buffer = aligned_alloc(PAGE, DIRECT);
  must(fstat(fd, &facts) == 0, "fstat");
  for (long done = 0; done < bytes; done += DIRECT) {
    at = at + DIRECT >= facts.st_size ? 0 : at + DIRECT;
    must(pread(fd, buffer, DIRECT, at) == DIRECT, "pread");
  }
}

/* Writes for so long, however fast the disk is: a fault whose size the disk decides would be another elsewhere. */
static void write_through(long ns) {
  static __thread int fd;
  static __thread char *buffer;
  uint64_t until = now_ns(CLOCK_MONOTONIC) + (uint64_t)ns;
  if (fd == 0) fd = open_file(O_RDWR | O_DIRECT), buffer = aligned_alloc(PAGE, PIECE);
  for (long at = 0; now_ns(CLOCK_MONOTONIC) < until; at = (at + PIECE) % WRITTEN)
    must(pwrite(fd, buffer, PIECE, at) == PIECE, "pwrite");
  must(fsync(fd) == 0, "fsync");
}

/* Pages of a file that is not in the page cache, so far apart that each waits for a read of its own. */
static void fault(long pages) {
  int fd = open_file(O_RDONLY);
  struct stat facts;
  volatile char sum = 0;
  must(fstat(fd, &facts) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "drop");
  char *p = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  must(p != MAP_FAILED, "map");
  for (long i = 0; i < pages; i++) sum += p[i * (facts.st_size / pages) / PAGE * PAGE];
  munmap(p, (size_t)facts.st_size);
  close(fd);
}

static void fresh(long bytes, int flags) {
  char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  must(p != MAP_FAILED, "mmap");
  madvise(p, (size_t)bytes, MADV_NOHUGEPAGE);
  if (flags == 0)
    for (long i = 0; i < bytes; i += PAGE) p[i] = 1;
  munmap(p, (size_t)bytes);
}

static void ask_server(long port) {
  static __thread int fd;
  char byte = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd == 0) {
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
  }
  must(send(fd, &byte, 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1, "server");
}

/* Attached in mid-run: says that it is warm, and goes on when told to. */
static void gate(void) {
  const char *path = getenv("FAULTS_GATE");
  char go[512];
  if (path == NULL) return;
  snprintf(go, sizeof go, "%s.go", path);
  close(open(path, O_CREAT | O_WRONLY, 0666));
  while (access(go, F_OK) != 0) usleep(2000);
  me->since = now_ns(CLOCK_MONOTONIC);
}

static int waits(const struct op *op) {
  const char *n = op->name;
  if (strcmp(n, "send") == 0) move(channels[op->a[0]][1], op->a[1], 1);
  else if (strcmp(n, "recv") == 0) move(channels[op->a[0]][0], op->a[1], 0);
  else if (strcmp(n, "lock") == 0) pthread_mutex_lock(&mutexes[op->a[0]]);
  else if (strcmp(n, "unlock") == 0) pthread_mutex_unlock(&mutexes[op->a[0]]);
  else if (strcmp(n, "poll") == 0) poll(&(struct pollfd){channels[op->a[0]][0], POLLIN, 0}, 1, (int)op->a[1]);
  else if (strcmp(n, "net") == 0) ask_server(op->a[0]);
  else if (strcmp(n, "gate") == 0) gate();
  else return 0;
  return 1;
}

int host_op(const struct op *op) {
  const char *n = op->name;
  if (strcmp(n, "burn") == 0 || strcmp(n, "hold") == 0) burn(op->a[0]);
  else if (strcmp(n, "sleep") == 0) rest(op->a[0]);
  else if (strcmp(n, "read") == 0) read_direct(op->a[0]);
  else if (strcmp(n, "write") == 0) write_through(op->a[0]);
  else if (strcmp(n, "fault") == 0) fault(op->a[0]);
  else if (strcmp(n, "touch") == 0) fresh(op->a[0], 0);
  else if (strcmp(n, "populate") == 0) fresh(op->a[0], MAP_POPULATE);
  else if (strcmp(n, "map") == 0) fresh(op->a[0], MAP_NORESERVE);
  else return waits(op);
  return 1;
}
