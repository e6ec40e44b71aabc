/* The log line of this process: text in a mapped file, updated in place, so that it is right after SIGKILL. */
#define LOG_WITH_TEMPLATE
#include "sg_common.h"
#include "log_layout.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t no_cell[8];
uint64_t *sg_cell = no_cell;

static void put_number(char *at, uint64_t value) {
  char digits[16];
  int i = 16;
  do {
    digits[--i] = (char)('0' + value % 10);
    value /= 10;
  } while (value != 0 && i > 0);
  memset(digits, ' ', (size_t)i);
  /* the high word first: a kill in between leaves a number too large by 10^8 only while it carries */
  uint64_t high, low;
  memcpy(&high, digits, 8);
  memcpy(&low, digits + 8, 8);
  if (*(volatile uint64_t *)at != high) __atomic_store_n((uint64_t *)at, high, __ATOMIC_RELEASE);
  __atomic_store_n((uint64_t *)(at + 8), low, __ATOMIC_RELEASE);
}

void sg_log_number(uint32_t offset, uint64_t value) {
  if (*sg_cell != 0) put_number((char *)*sg_cell + offset, value);
}

/* Adds one to the lower eight digits; the carry into the upper eight comes once in 10^8 calls. */
static void increment(char *at) {
  static int carry_lock;
  uint64_t *low = (uint64_t *)(at + 8), *high = (uint64_t *)at, seen, next;
  for (;;) {
    char digits[8];
    int i = 7;
    seen = __atomic_load_n(low, __ATOMIC_ACQUIRE);
    memcpy(digits, &seen, 8);
    while (i >= 0 && digits[i] == '9') digits[i--] = '0';
    if (i >= 0) {
      digits[i] = digits[i] == ' ' ? '1' : (char)(digits[i] + 1);
      memcpy(&next, digits, 8);
      if (__atomic_compare_exchange_n(low, &seen, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
      continue;
    }
    while (__atomic_exchange_n(&carry_lock, 1, __ATOMIC_ACQUIRE)) {}
    if (__atomic_load_n(low, __ATOMIC_ACQUIRE) == seen) {
      memcpy(digits, high, 8);
      for (i = 7; i >= 0 && digits[i] == '9'; i--) digits[i] = '0';
      if (i >= 0) digits[i] = digits[i] == ' ' ? '1' : (char)(digits[i] + 1);
      memcpy(&next, digits, 8);
      __atomic_store_n(high, next, __ATOMIC_RELEASE);
      memcpy(&next, "00000000", 8);
      __atomic_store_n(low, next, __ATOMIC_RELEASE);
      __atomic_store_n(&carry_lock, 0, __ATOMIC_RELEASE);
      return;
    }
    __atomic_store_n(&carry_lock, 0, __ATOMIC_RELEASE);
  }
}

void sg_count(uint32_t offset) {
  if (*sg_cell == 0) sg_log_open();
  if (*sg_cell != 0) increment((char *)*sg_cell + offset);
}

static void fill(char *line) {
  char comm[17] = "", *at = line + LOG_COMM;
  put_number(line + LOG_PID, (uint64_t)getpid());
  put_number(line + LOG_START, sg_start_ticks(getpid()));
  prctl(PR_GET_NAME, comm);
  *at++ = '"';
  for (char *c = comm; *c != '\0'; c++) *at++ = (*c == '"' || *c == '\\' || *c < ' ') ? '_' : *c;
  *at = '"';
}

/* Appends the line on a page boundary of the file and maps it. */
static char *append_line(const char *path) {
  struct stat st;
  char *text, *map = MAP_FAILED;
  off_t start;
  size_t gap;
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return NULL;
  if (flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0) {
    start = (st.st_size + 4095) & ~(off_t)4095;
    gap = (size_t)(start - st.st_size);
    text = malloc(gap + LOG_SIZE);
    if (text != NULL) {
      memset(text, ' ', gap);
      memcpy(text + gap, log_template, LOG_SIZE);
      fill(text + gap);
      if (pwrite(fd, text, gap + LOG_SIZE, st.st_size) == (ssize_t)(gap + LOG_SIZE))
        map = mmap(NULL, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, start);
      free(text);
    }
  }
  flock(fd, LOCK_UN); /* closing is not enough: the mapping keeps the file open */
  close(fd);
  return map == MAP_FAILED ? NULL : map;
}

void sg_log_open(void) {
  uint64_t *lock = sg_cell + 1; /* in the page that a fork wipes: the child never inherits it taken */
  const char *path = getenv("SIMGPU_LOG");
  char *line = NULL;
  if (sg_cell == no_cell) return;
  while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) usleep(10);
  if (*sg_cell == 0) {
    if (path != NULL && *path != '\0') line = append_line(path);
    if (line == NULL) {
      line = mmap(NULL, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (line != MAP_FAILED) memcpy(line, log_template, LOG_SIZE);
    }
    if (line != MAP_FAILED) __atomic_store_n(sg_cell, (uint64_t)line, __ATOMIC_RELEASE);
  }
  __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

/* A page that the kernel zeroes in children: how a fork is noticed without a system call per call. */
__attribute__((constructor(101))) static void make_cell(void) {
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  madvise(page, 4096, MADV_WIPEONFORK);
  sg_cell = page;
}
