/* Loaded by the dynamic loader (LD_AUDIT) into programs on the simulated GPU: the simulated libraries win everywhere.
 *
 * A wheel finds its own libcudart by an RPATH, which beats LD_LIBRARY_PATH. This turns the RPATH's answer away for
 * the names that are simulated, so that the search goes on to LD_LIBRARY_PATH, and takes the folder off a full path
 * into a wheel. Nothing is loaded that the program does not ask for. No C library: the loader would load another. */
#include <link.h>
#include <stddef.h>
#include <stdint.h>

static const char *const simulated[] = {SG_SONAMES};

unsigned la_version(unsigned version);
unsigned la_version(unsigned version) { return version < LAV_CURRENT ? version : LAV_CURRENT; }

static int same(const char *a, const char *b) {
  while (*a != '\0' && *a == *b) a++, b++;
  return *a == *b;
}

static int is_simulated(const char *base) {
  for (size_t i = 0; i < sizeof simulated / sizeof simulated[0]; i++)
    if (same(base, simulated[i])) return 1;
  return 0;
}

static int in_a_wheel(const char *path) {
  static const char folder[] = "/nvidia/";
  for (; *path != '\0'; path++) {
    size_t i = 0;
    while (folder[i] != '\0' && path[i] == folder[i]) i++;
    if (folder[i] == '\0') return 1;
  }
  return 0;
}

char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag);
char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag) {
  const char *base = name;
  (void)cookie;
  for (const char *c = name; *c != '\0'; c++)
    if (*c == '/') base = c + 1;
  if (base == name || !is_simulated(base)) return (char *)(uintptr_t)name;
  if (flag == LA_SER_RUNPATH) return NULL;
  return (char *)(uintptr_t)(flag == LA_SER_ORIG && in_a_wheel(name) ? base : name);
}
