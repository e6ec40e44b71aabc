/* Streams, events and graphs. */
#include "rt_core.h"

SG(cudaStreamCreate)(void **out) { PASS(DRV(cuStreamCreate)(out, 0u)); }
SG(cudaStreamCreateWithFlags)(void **out, unsigned flags) { PASS(DRV(cuStreamCreate)(out, flags)); }
SG(cudaStreamCreateWithPriority)(void **out, unsigned flags, int priority) {
  PASS(DRV(cuStreamCreateWithPriority)(out, flags, priority));
}
SG(cudaStreamDestroy)(void *s) { PASS(DRV(cuStreamDestroy_v2)(s)); }
SG(cudaStreamSynchronize)(void *s) { PASS(DRVS(cuStreamSynchronize)(s)); }
SG(cudaStreamQuery)(void *s) { PASS(DRVS(cuStreamQuery)(s)); }
SG(cudaStreamWaitEvent)(void *s, void *e, unsigned flags) { PASS(DRVS(cuStreamWaitEvent)(s, e, flags)); }
SG(cudaStreamAddCallback)(void *s, void *callback, void *data, unsigned flags) {
  PASS(DRVS(cuStreamAddCallback)(s, callback, data, flags));
}
SG(cudaLaunchHostFunc)(void *s, void *callback, void *data) { PASS(DRVS(cuLaunchHostFunc)(s, callback, data)); }
SG_ALIAS(cudaLaunchHostFunc_v2, cudaLaunchHostFunc)
SG(cudaStreamGetPriority)(void *s, int *priority) { PASS(DRVS(cuStreamGetPriority)(s, priority)); }
SG(cudaStreamGetFlags)(void *s, unsigned *flags) { PASS(DRVS(cuStreamGetFlags)(s, flags)); }
SG(cudaStreamGetId)(void *s, unsigned long long *id) { PASS(DRVS(cuStreamGetId)(s, id)); }
SG(cudaStreamGetDevice)(void *s, int *dev) { PASS(DRVS(cuStreamGetDevice)(s, dev)); }
SG(cudaStreamAttachMemAsync)(void *s, void *p, size_t n, unsigned flags) {
  PASS(DRVS(cuStreamAttachMemAsync)(s, p, n, flags));
}
SG(cudaStreamGetAttribute)(void *s, int a, void *v) { PASS(DRVS(cuStreamGetAttribute)(s, a, v)); }
SG(cudaStreamSetAttribute)(void *s, int a, void *v) { PASS(DRVS(cuStreamSetAttribute)(s, a, v)); }
SG(cudaCtxResetPersistingL2Cache)(void) { PASS(DRV(cuCtxResetPersistingL2Cache)()); }

SG(cudaEventCreate)(void **out) { PASS(DRV(cuEventCreate)(out, 0u)); }
SG(cudaEventCreateWithFlags)(void **out, unsigned flags) { PASS(DRV(cuEventCreate)(out, flags)); }
SG(cudaEventDestroy)(void *e) { PASS(DRV(cuEventDestroy_v2)(e)); }
SG(cudaEventRecord)(void *e, void *s) { PASS(DRVS(cuEventRecord)(e, s)); }
SG(cudaEventRecordWithFlags)(void *e, void *s, unsigned flags) { PASS(DRVS(cuEventRecordWithFlags)(e, s, flags)); }
SG(cudaEventQuery)(void *e) { PASS(DRV(cuEventQuery)(e)); }
SG(cudaEventSynchronize)(void *e) { PASS(DRV(cuEventSynchronize)(e)); }
SG(cudaEventElapsedTime)(float *ms, void *a, void *b) { PASS(DRV(cuEventElapsedTime)(ms, a, b)); }
SG_ALIAS(cudaEventElapsedTime_v2, cudaEventElapsedTime)

SG(cudaStreamBeginCapture)(void *s, int mode) { PASS(DRVS(cuStreamBeginCapture_v2)(s, mode)); }
SG(cudaStreamEndCapture)(void *s, void **graph) { PASS(DRVS(cuStreamEndCapture)(s, graph)); }
SG(cudaStreamIsCapturing)(void *s, int *status) { PASS(DRVS(cuStreamIsCapturing)(s, status)); }
SG(cudaThreadExchangeStreamCaptureMode)(int *mode) { PASS(DRV(cuThreadExchangeStreamCaptureMode)(mode)); }
#if SG_MAJOR >= 13
SG(cudaStreamGetCaptureInfo)(void *s, int *status, unsigned long long *id, void **graph, void **deps, void **edges,
                             size_t *n) {
  PASS(DRV(cuStreamGetCaptureInfo_v3)(s, status, id, graph, deps, edges, n));
}
#else
SG(cudaStreamGetCaptureInfo)(void *s, int *status, unsigned long long *id) {
  PASS(DRV(cuStreamGetCaptureInfo_v2)(s, status, id, NULL, NULL, NULL));
}
#endif
SG(cudaStreamGetCaptureInfo_v2)(void *s, int *status, unsigned long long *id, void **graph, void **deps, size_t *n) {
  PASS(DRV(cuStreamGetCaptureInfo_v2)(s, status, id, graph, deps, n));
}
SG(cudaStreamGetCaptureInfo_v3)(void *s, int *status, unsigned long long *id, void **graph, void **deps, void **edges,
                                size_t *n) {
  PASS(DRV(cuStreamGetCaptureInfo_v3)(s, status, id, graph, deps, edges, n));
}

SG(cudaGraphCreate)(void **out, unsigned flags) { PASS(DRV(cuGraphCreate)(out, flags)); }
SG(cudaGraphInstantiate)(void **out, void *graph, unsigned long long flags) {
  PASS(DRV(cuGraphInstantiateWithFlags)(out, graph, flags));
}
SG_ALIAS(cudaGraphInstantiateWithFlags, cudaGraphInstantiate)
SG(cudaGraphInstantiateWithParams)(void **out, void *graph, void *params) {
  PASS(DRV(cuGraphInstantiateWithParams)(out, graph, params));
}
SG(cudaGraphUpload)(void *exec, void *s) { PASS(DRVS(cuGraphUpload)(exec, s)); }
SG(cudaGraphLaunch)(void *exec, void *s) { PASS(DRVS(cuGraphLaunch)(exec, s)); }
SG(cudaGraphExecDestroy)(void *exec) { PASS(DRV(cuGraphExecDestroy)(exec)); }
SG(cudaGraphDestroy)(void *graph) { PASS(DRV(cuGraphDestroy)(graph)); }
SG(cudaGraphGetNodes)(void *graph, void **nodes, size_t *n) { PASS(DRV(cuGraphGetNodes)(graph, nodes, n)); }

struct kernel_node {
  const void *function;
  struct dim3 grid, block;
  unsigned shared;
  void **arguments, **extra, *kernel, *context;
};
SG(cudaGraphAddKernelNode)(void **node, void *graph, void *deps, size_t n, const struct kernel_node *p) {
  struct kernel_node d = {0};
  void *kernel;
  int err = rt_enter();
  if (err == RT_OK && p == NULL) err = RT_VALUE;
  if (err == RT_OK) err = rt_kernel(p->function, &kernel);
  if (err != RT_OK) return rt_done(err);
  d.function = kernel;
  d.grid = p->grid;
  d.block = p->block;
  d.arguments = p->arguments;
  return rt_done(DRV(cuGraphAddKernelNode_v2)(node, graph, deps, n, &d));
}
#if SG_MAJOR >= 13
SG(cudaGraphAddDependencies)(void *g, void *from, void *to, void *kinds, size_t n) {
  PASS(DRV(cuGraphAddDependencies_v2)(g, from, to, kinds, n));
}
#else
SG(cudaGraphAddDependencies)(void *g, void *from, void *to, size_t n) {
  PASS(DRV(cuGraphAddDependencies)(g, from, to, n));
}
#endif
SG(cudaGraphAddEmptyNode)(void **node, void *g, void *deps, size_t n) {
  PASS(DRV(cuGraphAddEmptyNode)(node, g, deps, n));
}
