/* cuDNN's recurrent networks: where their weights lie, and one kernel for a pass over a sequence. */
#include "dnn_core.h"

#include <stdlib.h>

#define STEP_NS 2000ull /* a step of a layer waits for the one before */

struct rnn {
  int mode, bias, directions, type, input, hidden, projection, layers;
};

struct sequence {
  int length, batch, width;
};

SG_ALIAS(cudnnCreateDropoutDescriptor, cudnnCreateRNNDescriptor)
SG_ALIAS(cudnnCreateRNNDataDescriptor, cudnnCreateRNNDescriptor)
SG(cudnnCreateRNNDescriptor)(void **out) {
  *out = calloc(1, sizeof(struct rnn));
  return *out == NULL ? D_ALLOC : D_OK;
}
SG_ALIAS(cudnnDestroyDropoutDescriptor, cudnnDestroyRNNDescriptor)
SG_ALIAS(cudnnDestroyRNNDataDescriptor, cudnnDestroyRNNDescriptor)
SG(cudnnDestroyRNNDescriptor)(void *d) {
  free(d);
  return D_OK;
}
SG_ALIAS(cudnnRestoreDropoutDescriptor, cudnnSetDropoutDescriptor)
SG(cudnnSetDropoutDescriptor)(void *d) { return d == NULL ? D_PARAM : D_OK; }
SG(cudnnDropoutGetStatesSize)(void *h, size_t *size) {
  (void)h;
  *size = 1 << 20;
  return D_OK;
}

SG(cudnnSetRNNDescriptor_v8)(struct rnn *r, int algorithm, int mode, int bias, int direction, int input_mode, int type,
                             int precision, int math, int input, int hidden, int projection, int layers) {
  (void)algorithm, (void)input_mode, (void)precision, (void)math;
  if (r == NULL || layers < 1 || hidden < 1) return D_PARAM;
  *r = (struct rnn){mode, bias, direction == 1 ? 2 : 1, type, input, hidden, projection, layers};
  return D_OK;
}
SG(cudnnSetRNNDataDescriptor)(struct sequence *s, int type, int layout, int length, int batch, int width) {
  (void)type, (void)layout;
  *s = (struct sequence){length, batch, width};
  return D_OK;
}

static int gates(const struct rnn *r) { return r->mode == 2 ? 4 : r->mode == 3 ? 3 : 1; }
static int projects(const struct rnn *r) { return r->projection > 0 && r->projection < r->hidden; }
static int output(const struct rnn *r) { return projects(r) ? r->projection : r->hidden; }
static int inputs(const struct rnn *r, int pseudo) {
  return pseudo < r->directions ? r->input : output(r) * r->directions;
}

/* Rows and columns of a matrix: the gates' of the input, the gates' of the state before, the projection. */
static void shape(const struct rnn *r, int pseudo, int id, int *rows, int *columns) {
  *rows = id < 2 * gates(r) ? r->hidden : output(r);
  *columns = id < gates(r) ? inputs(r, pseudo) : id < 2 * gates(r) ? output(r) : r->hidden;
}

static int64_t layer_weights(const struct rnn *r, int pseudo) {
  int64_t all = (int64_t)gates(r) * r->hidden * (inputs(r, pseudo) + output(r));
  return all + (projects(r) ? (int64_t)output(r) * r->hidden : 0);
}

static int64_t weights(const struct rnn *r) {
  int64_t all = 0;
  for (int p = 0; p < r->layers * r->directions; p++) all += layer_weights(r, p);
  return all;
}

/* Biases follow all the matrices: two for each gate, or one with the input or with the state. */
static int biases_of_gate(const struct rnn *r) { return r->bias == 0 ? 0 : r->bias == 2 ? 2 : 1; }
static int64_t layer_biases(const struct rnn *r) { return (int64_t)biases_of_gate(r) * gates(r) * r->hidden; }

SG(cudnnGetRNNWeightSpaceSize)(void *h, const struct rnn *r, size_t *size) {
  (void)h;
  int64_t elements = weights(r) + layer_biases(r) * r->layers * r->directions;
  *size = (size_t)elements * math_type_bytes(dnn_data_type(r->type));
  return D_OK;
}

static void describe(struct tensor *t, int type, int rows, int columns) {
  *t = (struct tensor){type, 0, 3, {1, rows, columns}, {rows * columns, columns, 1}};
}

SG(cudnnGetRNNWeightParams)(void *h, const struct rnn *r, int pseudo, size_t size, char *space, int id,
                            struct tensor *matrix, char **matrix_at, struct tensor *bias, char **bias_at) {
  (void)h, (void)size;
  struct tensor unused;
  char *nowhere;
  int rows, columns, all = 2 * gates(r) + projects(r);
  int64_t bytes = (int64_t)math_type_bytes(dnn_data_type(r->type)), at = 0;
  if (id < 0 || id > 8) return D_PARAM;
  if (matrix == NULL) matrix = &unused; /* who asks for the one asks not for the other */
  if (bias == NULL) bias = &unused;
  if (matrix_at == NULL) matrix_at = &nowhere;
  if (bias_at == NULL) bias_at = &nowhere;
  *matrix_at = *bias_at = NULL;
  *matrix = *bias = (struct tensor){.type = r->type};
  if (id >= all) return D_OK;
  for (int p = 0; p < pseudo; p++) at += layer_weights(r, p);
  for (int i = 0; i < id; i++) {
    shape(r, pseudo, i, &rows, &columns);
    at += (int64_t)rows * columns;
  }
  shape(r, pseudo, id, &rows, &columns);
  describe(matrix, r->type, rows, columns);
  *matrix_at = space + at * bytes;
  int first = r->bias == 3 ? gates(r) : 0, index = id - first;
  if (index < 0 || index >= biases_of_gate(r) * gates(r)) return D_OK;
  describe(bias, r->type, r->hidden, 1);
  *bias_at = space + (weights(r) + pseudo * layer_biases(r) + (int64_t)index * r->hidden) * bytes;
  return D_OK;
}

SG(cudnnGetRNNTempSpaceSizes)(void *h, const struct rnn *r, int mode, const struct sequence *x, size_t *workspace,
                              size_t *reserve) {
  (void)h;
  int64_t elements = (int64_t)x->length * x->batch * r->hidden * gates(r) * r->layers * r->directions;
  *workspace = (size_t)elements * 4;
  if (reserve != NULL) *reserve = mode == 0 ? 0 : (size_t)elements * 4;
  return D_OK;
}

static int pass(struct dnn *h, const struct rnn *r, const struct sequence *x, const char *name) {
  double tokens = (double)x->length * x->batch, elements = (double)weights(r);
  uint64_t stepping = STEP_NS * (uint64_t)x->length * (uint64_t)r->layers, blocks = 1 + (uint64_t)r->hidden / 16;
  int type = dnn_data_type(r->type);
  struct sg_work work = math_work(2 * tokens * elements, elements * (double)math_type_bytes(type), blocks, type, 1);
  if (work.duration_ns < stepping) {
    work.use.tensor = (uint16_t)(work.use.tensor * work.duration_ns / stepping);
    work.use.dram = (uint16_t)(work.use.dram * work.duration_ns / stepping);
    work.duration_ns = stepping;
  }
  return dnn_run(h, name, blocks, &work);
}

SG(cudnnRNNForward)(struct dnn *h, const struct rnn *r, int mode, const void *lengths, const struct sequence *x) {
  (void)mode, (void)lengths;
  return pass(h, r, x, "RNN_blockPersist_fp_cudnn");
}
SG(cudnnRNNBackwardData_v8)(struct dnn *h, const struct rnn *r, const void *lengths, const struct sequence *y,
                            const void *y_data, const void *dy, const struct sequence *x) {
  (void)lengths, (void)y, (void)y_data, (void)dy;
  return pass(h, r, x, "RNN_blockPersist_bp_cudnn");
}
SG(cudnnRNNBackwardWeights_v8)(struct dnn *h, const struct rnn *r, int add, const void *lengths,
                               const struct sequence *x) {
  (void)add, (void)lengths;
  return pass(h, r, x, "RNN_wgrad_gemm_cudnn");
}
