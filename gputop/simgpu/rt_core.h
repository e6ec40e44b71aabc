/* The inside of the simulated runtime: every function is a call or two into the driver. */
#ifndef RT_CORE_H
#define RT_CORE_H

#include "drv_table.h"
#include "sg_common.h"

enum { RT_OK = 0, RT_VALUE = 1, RT_MEMORY = 2, RT_DRIVER = 35, RT_FUNCTION = 98, RT_NO_DEVICE = 100, RT_DEVICE = 101,
       RT_NOT_READY = 600, RT_UNSUPPORTED = 801 };

#define RT_VERSION (SG_MAJOR * 1000 + (SG_MAJOR == 12 ? 90 : 50)) /* 12.9 and 13.5 */

struct dim3 {
  unsigned x, y, z;
};

extern struct drv_table drv;
extern __thread unsigned char sg_ptds __attribute__((tls_model("initial-exec")));

#define DRV(name) (drv.name[0])
/* the variant that the caller's own name had */
#define DRVS(name) (drv.name[sg_ptds])

int rt_driver(void); /* loads the driver library */
int rt_enter(void);  /* and makes the thread's device current */
int rt_done(int error);
int rt_kernel(const void *host, void **kernel);
int rt_symbol(const void *host, char **address, size_t *size);

/* Enters, evaluates one driver call and keeps its error for cudaGetLastError. */
#define PASS(call)                         \
  do {                                     \
    int error_ = rt_enter();               \
    return rt_done(error_ ? error_ : (call)); \
  } while (0)

#endif
