/* cuDNN of the simulation: descriptors that remember what they are told, and kernels that last accordingly. */
#ifndef DNN_CORE_H
#define DNN_CORE_H

#include "math_core.h"

enum { D_OK = 0, D_INIT = 1001, D_PARAM = 2000, D_UNSUPPORTED = 3000, D_ALLOC = 4003, D_EXECUTION = 5000 };
#define MAX_DIMS 8

struct dnn {
  void *stream;
};

/* Also a filter: its third number is a format there, strides here. */
struct tensor {
  int type, format, rank;
  int dims[MAX_DIMS], strides[MAX_DIMS];
};

/* dnn_backend.c: one attribute of a descriptor */
struct attribute {
  int name, type;
  int64_t count;
  void *values;
  struct attribute *next;
};
struct descriptor {
  int kind, references;
  struct attribute *attributes;
};

const struct attribute *dnn_attribute(const struct descriptor *d, int name);
struct descriptor *dnn_child(const struct descriptor *d, int name, int64_t index);
int dnn_data_type(int type); /* cudnnDataType_t as cudaDataType_t */
const char *dnn_type_name(int type);
double dnn_bytes(const struct tensor *t);
int dnn_run(struct dnn *h, const char *name, uint64_t blocks, const struct sg_work *work);
int dnn_pass(struct dnn *h, const char *name, double bytes);

#endif
