/* Faults for tests, of NVML and of the clocks: from the environment, or from a file, so that they can begin and end while a tool runs.
 *
 * Entries, apart by commas or line ends: lost:GPU, hang:FUNCTION:MS, notsupported:FUNCTION, nopermission:FUNCTION,
 * error:FUNCTION:CODE, throttle:REASONS:MHZ, ecc:CORRECTED:UNCORRECTED, encoder:PERCENT, decoder:PERCENT,
 * mig:INSTANCES. All but the first may end in @GPU. */
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

static unsigned at_most(const char *text, unsigned limit) {
  unsigned long value = strtoul(text, NULL, 0);
  return value > limit ? limit : (unsigned)value;
}

/* Entries that say how the device is; 0 when it is none of them. */
static int apply_state(const char *entry, const char *first, const char *second, int dev, struct faults *out) {
  if (strncmp(entry, "lost:", 5) == 0) {
    if (dev == atoi(first)) out->error = FAULT_LOST;
  } else if (strncmp(entry, "throttle:", 9) == 0) {
    out->throttle = strtoull(first, NULL, 0);
    if (second != NULL) out->throttle_mhz = (unsigned)atoi(second);
  } else if (strncmp(entry, "ecc:", 4) == 0) {
    out->ecc_corrected = strtoull(first, NULL, 0);
    if (second != NULL) out->ecc_uncorrected = strtoull(second, NULL, 0);
  } else if (strncmp(entry, "encoder:", 8) == 0) {
    out->encoder = at_most(first, 100);
  } else if (strncmp(entry, "decoder:", 8) == 0) {
    out->decoder = at_most(first, 100);
  } else if (strncmp(entry, "mig:", 4) == 0) {
    out->mig = at_most(first, MIG_MAX);
  } else {
    return 0;
  }
  return 1;
}

static void apply(char *entry, const char *function, int dev, struct faults *out) {
  char *at = strrchr(entry, '@');
  const char *colon, *second;
  size_t length;
  if (at != NULL) {
    if (dev != atoi(at + 1)) return;
    *at = '\0';
  }
  colon = strchr(entry, ':');
  if (colon == NULL) return;
  second = strchr(colon + 1, ':');
  length = second != NULL ? (size_t)(second - colon - 1) : strlen(colon + 1);
  if (second != NULL) second++;
  if (apply_state(entry, colon + 1, second, dev, out) || !means(colon + 1, length, function)) return;
  if (strncmp(entry, "hang:", 5) == 0) {
    out->hang_ms = second != NULL ? (uint32_t)strtoul(second, NULL, 10) : 1000;
  } else if (out->error == FAULT_LOST) {
    return; /* whatever else is said of it */
  } else if (strncmp(entry, "notsupported:", 13) == 0) {
    out->error = FAULT_UNSUPPORTED;
  } else if (strncmp(entry, "nopermission:", 13) == 0) {
    out->error = FAULT_PERMISSION;
  } else if (strncmp(entry, "error:", 6) == 0 && second != NULL) {
    out->error = atoi(second);
  }
}

static void apply_all(char *text, const char *function, int dev, struct faults *out) {
  char *rest = NULL;
  for (char *entry = strtok_r(text, ",;\n ", &rest); entry != NULL; entry = strtok_r(NULL, ",;\n ", &rest))
    apply(entry, function, dev, out);
}

void sg_faults(const char *function, int dev, struct faults *out) {
  const char *set = getenv("SIMGPU_NVML_FAULT"), *path = getenv("SIMGPU_NVML_FAULT_FILE");
  char text[4096];
  ssize_t n;
  int fd;
  memset(out, 0, sizeof *out);
  if (set != NULL && strlen(set) < sizeof text) {
    strcpy(text, set);
    apply_all(text, function, dev, out);
  }
  if (path == NULL || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) return;
  n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return;
  text[n] = '\0';
  apply_all(text, function, dev, out);
}
