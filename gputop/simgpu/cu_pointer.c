/* What is known about a pointer. */
#include "cu_core.h"

#include <string.h>

SG(cuMemGetAddressRange_v2)(uint64_t *base, size_t *size, const void *p) {
  struct range r;
  if (mem_find(p, &r) != 1) return E_NOT_FOUND;
  if (base != NULL) *base = r.start;
  if (size != NULL) *size = r.size;
  return OK;
}

/* 1: context, 2: memory type, 3: device pointer, 4: host pointer, 6: sync of copies, 7: a number of the allocation,
 * 8: managed, 9: ordinal, 10: for older IPC, 11: start, 12: size, 13: mapped, 14: kinds of handles, 15: for RDMA,
 * 16: access (3: read and write), 17: pool. */
SG(cuPointerGetAttribute)(void *data, int attribute, const void *p) {
  struct range r;
  int where = mem_find(p, &r), device = where == 1;
  if (where == 0) return E_VALUE;
  switch (attribute) {
    case 1: *(void **)data = &dev_table[r.dev].context; return OK;
    case 2: *(unsigned *)data = device ? 2 : 1; return OK;
    case 3: *(const void **)data = p; return OK;
    case 4: *(const void **)data = device && r.flags != R_MANAGED ? NULL : p; return OK;
    case 6: *(unsigned *)data = 0; return OK;
    case 7: *(uint64_t *)data = r.start; return OK;
    case 8: *(unsigned *)data = r.flags == R_MANAGED; return OK;
    case 9: *(int *)data = r.dev; return OK;
    case 10: *(unsigned *)data = 0; return OK;
    case 11: *(uint64_t *)data = r.start; return OK;
    case 12: *(size_t *)data = r.size; return OK;
    case 13: *(unsigned *)data = 1; return OK;
    case 14: *(uint64_t *)data = 0; return OK;
    case 15: *(unsigned *)data = 0; return OK;
    case 16: *(unsigned *)data = 3; return OK;
    case 17: *(void **)data = NULL; return OK;
    default: return E_UNSUPPORTED;
  }
}

/* What a pointer that the driver does not know has of it: nothing, and that is no error. */
static void no_attribute(void *data, int attribute) {
  static const unsigned char bytes[] = {[1] = 8, [2] = 4, [3] = 8, [4] = 8, [6] = 4, [7] = 8, [8] = 4, [9] = 4,
                                        [10] = 4, [11] = 8, [12] = 8, [13] = 4, [14] = 8, [15] = 4, [16] = 4, [17] = 8};
  if (attribute > 0 && attribute < (int)sizeof bytes) memset(data, 0, bytes[attribute]);
  if (attribute == 9) *(int *)data = -2;
}

SG(cuPointerGetAttributes)(unsigned count, const int *attributes, void **data, const void *p) {
  int err = cu_enter();
  if (err != OK) return err;
  if (attributes == NULL || data == NULL || count == 0) return E_VALUE;
  for (unsigned i = 0; i < count; i++) {
    err = impl_cuPointerGetAttribute(data[i], attributes[i], p);
    if (err == E_VALUE) no_attribute(data[i], attributes[i]);
    if (err == E_UNSUPPORTED) return err;
  }
  return OK;
}
SG(cuPointerSetAttribute)(const void *value, int attribute, const void *p) {
  struct range r;
  if (value == NULL || attribute != 6) return E_VALUE;
  return mem_find(p, &r) == 1 ? OK : E_VALUE;
}
