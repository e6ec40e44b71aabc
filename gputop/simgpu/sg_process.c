/* Small facts about settings, processes and the state file that several libraries need. */
#include "sg_state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t sg_env_u64(const char *name, uint64_t fallback) {
  const char *text = getenv(name);
  char *end;
  unsigned long long value;
  if (text == NULL || *text == '\0' || *text == '-') return fallback;
  value = strtoull(text, &end, 10);
  return *end == '\0' ? value : fallback;
}

uint64_t sg_start_ticks(int pid) {
  char path[64], text[1024], *at;
  ssize_t n;
  int fd, field;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  at = strrchr(text, ')'); /* the name may hold spaces and brackets */
  if (at != NULL && at[1] != '\0' && (at[2] == 'Z' || at[2] == 'X')) return 0; /* dead, not yet waited for */
  for (field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
  return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

const char *sg_state_path(void) {
  const char *path = getenv("SIMGPU_STATE");
  return path != NULL && *path != '\0' ? path : STATE_DEFAULT;
}

int sg_process_alive(uint32_t pid, uint64_t start) {
  if (pid == 0 || pid > INT32_MAX) return 0;
  if (kill((int)pid, 0) != 0 && errno == ESRCH) return 0;
  return sg_start_ticks((int)pid) == start;
}
