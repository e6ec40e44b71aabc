/* Executing a plan: one kernel, as long as the convolutions, products and attentions of its graph. */
#include "dnn_core.h"

#include <stdio.h>

enum { PLAN_CONFIG = 401, CFG_ENGINE = 300, ENGINE_GRAPH = 1300, GRAPH_OPS = 801 };
enum { TENSOR_TYPE = 901, TENSOR_DIMS = 902, TENSOR_VIRTUAL = 907, FIRST_OPERATION = 700 };

/* The tensors of an operation whose sizes tell its work: the filter or one operand, and the result. */
static const struct operation {
  int filter, result;
  const char *name;
} convolutions[] = {
    {703, 705, "fprop"}, /* W, Y */
    {709, 711, "dgrad"}, /* W, DY */
    {715, 717, "wgrad"}, /* DW, DY */
};
enum { MATMUL_A = 1520, MATMUL_C = 1522, SDPA_Q = 2800, SDPA_K = 2801, SDPA_BACKWARD_Q = 2851, SDPA_BACKWARD_K = 2852 };

static int64_t dims_of(const struct descriptor *t, const int64_t **dims) {
  const struct attribute *a = dnn_attribute(t, TENSOR_DIMS);
  *dims = a == NULL ? NULL : a->values;
  return a == NULL ? 0 : a->count;
}

static double product(const struct descriptor *t, int64_t from) {
  const int64_t *dims;
  int64_t rank = dims_of(t, &dims);
  double all = rank > 0 ? 1 : 0;
  for (int64_t i = from; i < rank; i++) all *= (double)dims[i];
  return all;
}

static int64_t last_dim(const struct descriptor *t, int64_t back) {
  const int64_t *dims;
  int64_t rank = dims_of(t, &dims);
  return rank > back ? dims[rank - 1 - back] : 0;
}

struct work {
  double flops, bytes;
  int type;
  const char *name;
};

static void note(struct work *w, double flops, const struct descriptor *operand, const char *name) {
  const struct attribute *type = dnn_attribute(operand, TENSOR_TYPE);
  if (type != NULL && w->flops == 0) w->type = *(int *)type->values;
  if (w->name == NULL) w->name = name;
  w->flops += flops;
}

/* q and k are (batch, heads, length, width): two products forward, five backward. */
static void note_attention(struct work *w, const struct descriptor *q, const struct descriptor *k, int products) {
  note(w, 2.0 * products * product(q, 0) * (double)last_dim(k, 1), q, products == 2 ? "sdpa_fprop" : "sdpa_bprop");
}

static void add_operation(struct work *w, const struct descriptor *op) {
  for (size_t i = 0; i < sizeof convolutions / sizeof convolutions[0]; i++) {
    const struct descriptor *filter = dnn_child(op, convolutions[i].filter, 0);
    const struct descriptor *result = dnn_child(op, convolutions[i].result, 0);
    if (filter != NULL && result != NULL)
      note(w, 2 * product(result, 0) * product(filter, 1), filter, convolutions[i].name);
  }
  const struct descriptor *a = dnn_child(op, MATMUL_A, 0), *c = dnn_child(op, MATMUL_C, 0);
  if (a != NULL && c != NULL) note(w, 2 * product(c, 0) * (double)last_dim(a, 0), a, "sdpa_fprop");
  const struct descriptor *q = dnn_child(op, SDPA_Q, 0), *k = dnn_child(op, SDPA_K, 0);
  if (q != NULL && k != NULL) note_attention(w, q, k, 2);
  q = dnn_child(op, SDPA_BACKWARD_Q, 0);
  k = dnn_child(op, SDPA_BACKWARD_K, 0);
  if (q != NULL && k != NULL) note_attention(w, q, k, 5);
  for (const struct attribute *x = op->attributes; x != NULL; x = x->next) {
    const struct descriptor *t = dnn_child(op, x->name, 0);
    const struct attribute *type = dnn_attribute(t, TENSOR_TYPE), *hidden = dnn_attribute(t, TENSOR_VIRTUAL);
    if (type == NULL || (hidden != NULL && *(char *)hidden->values)) continue;
    w->bytes += product(t, 0) * (double)math_type_bytes(dnn_data_type(*(int *)type->values));
  }
}

SG(cudnnBackendExecute)(struct dnn *h, const struct descriptor *plan, const struct descriptor *pack) {
  const struct descriptor *engine = dnn_child(dnn_child(plan, PLAN_CONFIG, 0), CFG_ENGINE, 0);
  const struct attribute *ops = dnn_attribute(dnn_child(engine, ENGINE_GRAPH, 0), GRAPH_OPS);
  struct work w = {0};
  char name[160];
  (void)pack;
  if (ops == NULL) return D_PARAM;
  for (int64_t i = 0; i < ops->count; i++) add_operation(&w, ((struct descriptor **)ops->values)[i]);
  const char *type = dnn_type_name(w.type), *what = w.name != NULL ? w.name : "pointwise";
  /* fp32 convolutions may use TF32: torch's default */
  uint64_t blocks = 1 + (uint64_t)(w.bytes / 16384);
  struct sg_work work = math_work(w.flops, w.bytes, blocks, dnn_data_type(w.type), 1);
  snprintf(name, sizeof name, "sm90_xmma_%s_implicit_gemm_%s%s_%sf32_%s_nhwckrsc_nhwc_cudnn", what, type, type,
           w.type == 0 ? "tf32" : type, type);
  return dnn_run(h, name, blocks, &work);
}
