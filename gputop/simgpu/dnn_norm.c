/* cuDNN's batch normalisation: kernels that read and write whole tensors and compute little. */
#include "dnn_core.h"

static int nothing(size_t *size) {
  *size = 0;
  return D_OK;
}

SG(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize)(void *h, int mode, int ops, void *x, void *z, void *y,
                                                             void *scale, void *activation, size_t *size) {
  (void)h, (void)mode, (void)ops, (void)x, (void)z, (void)y, (void)scale, (void)activation;
  return nothing(size);
}
SG(cudnnGetBatchNormalizationBackwardExWorkspaceSize)(void *h, int mode, int ops, void *x, void *y, void *dy, void *dz,
                                                      void *dx, void *scale, void *activation, size_t *size) {
  (void)h, (void)mode, (void)ops, (void)x, (void)y, (void)dy, (void)dz, (void)dx, (void)scale, (void)activation;
  return nothing(size);
}
SG(cudnnGetBatchNormalizationTrainingExReserveSpaceSize)(void *h, int mode, int ops, void *activation, void *x,
                                                         size_t *size) {
  (void)h, (void)mode, (void)ops, (void)activation, (void)x;
  return nothing(size);
}

SG(cudnnBatchNormalizationForwardTrainingEx)(struct dnn *h, int mode, int ops, const void *alpha, const void *beta,
                                             const struct tensor *x) {
  (void)mode, (void)ops, (void)alpha, (void)beta;
  return dnn_pass(h, "bn_fw_tr_1C11_kernel_NCHW_cudnn", 3 * dnn_bytes(x));
}
SG(cudnnBatchNormalizationForwardInference)(struct dnn *h, int mode, const void *alpha, const void *beta,
                                            const struct tensor *x) {
  (void)mode, (void)alpha, (void)beta;
  return dnn_pass(h, "bn_fw_inf_1C11_kernel_NCHW_cudnn", 2 * dnn_bytes(x));
}
SG(cudnnBatchNormalizationBackwardEx)(struct dnn *h, int mode, int ops, const void *alpha, const void *beta,
                                      const void *alpha_scale, const void *beta_scale, const struct tensor *x) {
  (void)mode, (void)ops, (void)alpha, (void)beta, (void)alpha_scale, (void)beta_scale;
  return dnn_pass(h, "bn_bw_1C11_kernel_NCHW_cudnn", 5 * dnn_bytes(x));
}
