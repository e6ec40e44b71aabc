/* cuGetProcAddress: a name, and the version of the interface that its caller was written for. */
#include "cu_core.h"

#include <stdio.h>
#include <string.h>

enum { FOUND, NO_SUCH_NAME, VERSION_TOO_OLD };
#define PER_THREAD_STREAMS 2

/* The first of the table's entries that is not before the name. Both tables begin with it and are in order. */
static const void *search(const void *table, size_t size, unsigned count, const char *name) {
  const char *base = table;
  for (unsigned low = 0, high = count; low < high;) {
    unsigned mid = (low + high) / 2;
    int order = strcmp(*(const char *const *)(base + mid * size), name);
    if (order == 0) return base + mid * size;
    if (order < 0)
      low = mid + 1;
    else
      high = mid;
  }
  return NULL;
}

static const struct sg_export *export_named(const char *name) {
  return search(sg_exports, sizeof sg_exports[0], sg_export_count, name);
}

/* The form that was current in that version; a name without versions has one form. */
static const struct sg_export *form_of(const char *name, int version, int *status) {
  const struct sg_versions *v = search(sg_versions, sizeof sg_versions[0], sg_version_count, name);
  const struct sg_export *e = NULL;
  if (v == NULL || v->count == 0) {
    e = export_named(name);
    *status = e == NULL ? NO_SUCH_NAME : FOUND;
    return e;
  }
  for (unsigned i = 0; i < v->count && v->form[i].version <= version; i++) e = &sg_exports[v->form[i].export];
  *status = e == NULL ? VERSION_TOO_OLD : FOUND;
  return e;
}

static const struct sg_export *per_thread(const struct sg_export *e) {
  static const char *const suffixes[] = {"_ptsz", "_ptds"};
  char full[160];
  for (int i = 0; i < 2; i++) {
    snprintf(full, sizeof full, "%s%s", e->name, suffixes[i]);
    const struct sg_export *variant = export_named(full);
    if (variant != NULL) return variant;
  }
  return e;
}

SG(cuGetProcAddress_v2)(const char *name, void **out, int version, uint64_t flags, int *status) {
  const struct sg_export *e;
  int found;
  if (name == NULL || out == NULL) return E_VALUE;
  e = form_of(name, version, &found);
  if (e != NULL && (flags & PER_THREAD_STREAMS)) e = per_thread(e);
  *out = e == NULL ? NULL : (void *)e->function;
  if (status != NULL) *status = found;
  return e == NULL ? E_NOT_FOUND : OK;
}
SG(cuGetProcAddress)(const char *name, void **out, int version, uint64_t flags) {
  return impl_cuGetProcAddress_v2(name, out, version, flags, NULL);
}
