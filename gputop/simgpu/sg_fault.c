/* Faults for tests, of NVML and of the clocks: from the environment, or from a file, so that they can begin and end while a tool runs.
 *
 * Entries, apart by commas or line ends: hang:FUNCTION:MS, lost:GPU, notsupported:FUNCTION,
 * nopermission:FUNCTION, throttle:REASONS:MHZ. */
#include "sg_fault.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "nvmlDeviceGetCount" also means nvmlDeviceGetCount_v2. */
static int means(const char *entry, size_t length, const char *function) {
  if (strncmp(entry, function, length) != 0) return 0;
  return function[length] == '\0' || strncmp(function + length, "_v", 2) == 0;
}

static void apply(const char *entry, const char *function, struct faults *out) {
  const char *colon = strchr(entry, ':'), *second;
  size_t length;
  if (colon == NULL) return;
  second = strchr(colon + 1, ':');
  length = second != NULL ? (size_t)(second - colon - 1) : strlen(colon + 1);
  if (strncmp(entry, "lost:", 5) == 0) {
    out->lost |= 1ull << (atoi(colon + 1) & 63);
  } else if (strncmp(entry, "throttle:", 9) == 0) {
    out->throttle = strtoull(colon + 1, NULL, 0);
    if (second != NULL) out->throttle_mhz = (unsigned)atoi(second + 1);
  } else if (!means(colon + 1, length, function)) {
    return;
  } else if (strncmp(entry, "hang:", 5) == 0) {
    out->hang_ms = second != NULL ? (uint32_t)strtoul(second + 1, NULL, 10) : 1000;
  } else if (strncmp(entry, "notsupported:", 13) == 0) {
    out->error = FAULT_UNSUPPORTED;
  } else if (strncmp(entry, "nopermission:", 13) == 0) {
    out->error = FAULT_PERMISSION;
  }
}

static void apply_all(char *text, const char *function, struct faults *out) {
  char *rest = NULL;
  for (char *entry = strtok_r(text, ",;\n ", &rest); entry != NULL; entry = strtok_r(NULL, ",;\n ", &rest))
    apply(entry, function, out);
}

void sg_faults(const char *function, struct faults *out) {
  const char *set = getenv("SIMGPU_NVML_FAULT"), *path = getenv("SIMGPU_NVML_FAULT_FILE");
  char text[4096];
  ssize_t n;
  int fd;
  memset(out, 0, sizeof *out);
  if (set != NULL && strlen(set) < sizeof text) {
    strcpy(text, set);
    apply_all(text, function, out);
  }
  if (path == NULL || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) return;
  n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return;
  text[n] = '\0';
  apply_all(text, function, out);
}
