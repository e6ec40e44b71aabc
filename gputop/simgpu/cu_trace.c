/* The trace: a line per operation in a mapped file, so that it is there after SIGKILL.
 *
 * Each process reserves pieces of the file that it fills by itself. What is not written yet is '#', the first
 * character of a line is stored last, and so a line that was never finished reads as a comment. */
#include "cu_core.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE 65536u
#define LONGEST 160u

static char *piece;
static size_t used = PIECE;
static int off;

/* Appends a piece to the file; written and not only extended, so that a full disk shows here and not later. */
static char *append_piece(const char *path) {
  static char empty[PIECE];
  struct stat st;
  char *map = MAP_FAILED;
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return MAP_FAILED;
  memset(empty, '#', sizeof empty);
  empty[PIECE - 1] = '\n';
  if (flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0 && st.st_size % 4096 == 0 &&
      pwrite(fd, empty, PIECE, st.st_size) == (ssize_t)PIECE)
    map = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, st.st_size);
  flock(fd, LOCK_UN); /* closing is not enough: the mapping keeps the file open */
  close(fd);
  return map;
}

static int have_room(void) {
  const char *path = getenv("SIMGPU_TRACE");
  if (used + LONGEST < PIECE) return 1;
  if (off) return 0;
  if (piece != NULL) munmap(piece, PIECE);
  piece = path == NULL || *path == '\0' ? MAP_FAILED : append_piece(path);
  off = piece == MAP_FAILED;
  used = 0;
  return !off;
}

void trace_op(const struct stream *s, enum kind kind, uint64_t entered, uint64_t start, uint64_t end) {
  static const char *const names[] = {"kernel", "h2d", "d2h", "d2d", "memset", "host", "comm", "comm_wait"};
  char line[LONGEST];
  if (off || !have_room()) return;
  size_t n = (size_t)snprintf(line, sizeof line, "%d %d %llu %llu %llu %s %llu\n", getpid(), cfg.visible[s->dev],
                              (unsigned long long)s->id, (unsigned long long)start, (unsigned long long)end,
                              names[kind], (unsigned long long)entered);
  memcpy(piece + used + 1, line + 1, n - 1);
  __atomic_store_n(&piece[used], line[0], __ATOMIC_RELEASE);
  used += n;
}
