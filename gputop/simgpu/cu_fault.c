/* A kernel that fails, as a test asks for it (SIMGPU_KERNEL_FAULT=NUMBER:CODE): from its end on every call that needs
 * the context returns its error, as with a real device, until the process ends. */
#include "cu_core.h"

#include <stdlib.h>
#include <string.h>

static uint64_t failing, launched, broken_at;
static int code;

void fault_read(void) {
  const char *asked = getenv("SIMGPU_KERNEL_FAULT"), *colon = asked == NULL ? NULL : strchr(asked, ':');
  failing = colon == NULL ? 0 : strtoull(asked, NULL, 10);
  code = colon == NULL ? OK : atoi(colon + 1);
}

/* With sg_mu held: a kernel was queued. */
void fault_launched(struct stream *s) {
  if (failing != 0 && ++launched == failing) __atomic_store_n(&broken_at, q_end_of_stream(s), __ATOMIC_RELEASE);
}

int fault_now(void) {
  if (failing == 0) return OK;
  uint64_t at = __atomic_load_n(&broken_at, __ATOMIC_ACQUIRE);
  return at != 0 && at <= sg_now() ? code : OK;
}
