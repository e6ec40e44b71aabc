/* Small facts about processes and the state file that driver and NVML both need. */
#include "sg_state.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

const char *sg_state_path(void) {
  const char *path = getenv("SIMGPU_STATE");
  return path != NULL && *path != '\0' ? path : STATE_DEFAULT;
}

int sg_process_alive(uint32_t pid, uint64_t start) {
  if (pid == 0 || pid > INT32_MAX) return 0;
  if (kill((int)pid, 0) != 0 && errno == ESRCH) return 0;
  return sg_start_ticks((int)pid) == start;
}
