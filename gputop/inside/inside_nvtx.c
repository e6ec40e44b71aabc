/* Ranges that a program names by NVTX. What NVTX's header in the program loads this: NVTX_INJECTION64_PATH says so.
 *
 * Source: nvtx3/nvToolsExt.h and nvtxDetail/nvtxTypes.h of nvidia-nvtx-cu12 12.8 and of nvtx 0.2. */
#define _GNU_SOURCE
#include "hand.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define DEEPEST 64
#define SPANS 4096
#define LONGEST 1024

enum { CORE = 1, CORE2 = 5, CALLBACKS = 1 };
enum { ASCII = 1, UNICODE = 2, REGISTERED = 3 };

struct attributes { /* nvtxEventAttributes_t of version 2 */
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const void *message;
};

struct named { /* what a handle of ours points to: a domain, a registered string */
  uint32_t text;
};

struct open_range {
  uint64_t begin, payload;
  uint32_t name, domain, payload_type;
};

static __thread struct open_range stack[DEEPEST];
static __thread int depth;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct {
  uint64_t id;
  struct open_range range;
} spans[SPANS];
static uint64_t next_span;

static uint32_t wide(const wchar_t *text) {
  char narrow[LONGEST] = "";
  size_t n = 0;
  for (; text != NULL && *text != 0 && n + 5 < sizeof narrow; text++) { /* as UTF-8, whatever the locale is */
    uint32_t c = (uint32_t)*text;
    if (c < 0x80) narrow[n++] = (char)c;
    else if (c < 0x800) narrow[n++] = (char)(0xc0 | c >> 6), narrow[n++] = (char)(0x80 | (c & 63));
    else if (c < 0x10000)
      narrow[n++] = (char)(0xe0 | c >> 12), narrow[n++] = (char)(0x80 | (c >> 6 & 63)), narrow[n++] = (char)(0x80 | (c & 63));
    else
      narrow[n++] = (char)(0xf0 | (c >> 18 & 7)), narrow[n++] = (char)(0x80 | (c >> 12 & 63)),
      narrow[n++] = (char)(0x80 | (c >> 6 & 63)), narrow[n++] = (char)(0x80 | (c & 63));
  }
  narrow[n] = '\0';
  return text_of(narrow);
}

static struct open_range named_range(const struct named *domain, const struct attributes *a) {
  struct open_range range = {.domain = domain == NULL ? 0 : domain->text};
  if (a == NULL) return range;
  if (a->message_type == ASCII) range.name = text_of(a->message);
  else if (a->message_type == UNICODE) range.name = wide(a->message);
  else if (a->message_type == REGISTERED && a->message != NULL) range.name = ((const struct named *)a->message)->text;
  range.payload_type = (uint32_t)a->payload_type;
  range.payload = a->payload;
  return range;
}

static void tell(const struct open_range *range, uint32_t what, uint64_t end) {
  struct row row = {.begin = range->begin, .end = end, .bytes = range->payload, .what = what, .stream = range->domain,
                    .name = range->name, .thread = thread_id(), .detail = range->payload_type};
  hand_row(&row);
}

static int push(struct open_range range) {
  if (depth < DEEPEST) {
    range.begin = now_ns();
    stack[depth] = range;
  }
  return depth++;
}

/* Ranges of several domains on a thread lie within each other as a rule; the innermost of that domain ends. */
static int pop(uint32_t domain) {
  int at = depth - 1;
  if (depth == 0) return -1;
  if (depth > DEEPEST) return --depth;
  while (at > 0 && stack[at].domain != domain) at--;
  if (stack[at].domain != domain) return -1;
  tell(&stack[at], WHAT_RANGE, now_ns());
  memmove(&stack[at], &stack[at + 1], (size_t)(depth - 1 - at) * sizeof stack[0]);
  return --depth;
}

static uint64_t start(struct open_range range) {
  range.begin = now_ns();
  pthread_mutex_lock(&mu);
  uint64_t id = ++next_span;
  spans[id % SPANS].id = id; /* what was started so many spans ago has not ended, and is told of no more */
  spans[id % SPANS].range = range;
  pthread_mutex_unlock(&mu);
  return id;
}

static void end(uint64_t id) {
  struct open_range range;
  pthread_mutex_lock(&mu);
  int known = id != 0 && spans[id % SPANS].id == id;
  range = spans[id % SPANS].range;
  if (known) spans[id % SPANS].id = 0;
  pthread_mutex_unlock(&mu);
  if (known) tell(&range, WHAT_SPAN, now_ns());
}

static void mark(struct open_range range) {
  range.begin = now_ns();
  tell(&range, WHAT_INSTANT, range.begin);
}

/* At the program's end: what the thread that ends it is in. */
static void at_exit(void) {
  if (depth > DEEPEST) depth = DEEPEST;
  while (depth > 0) tell(&stack[--depth], WHAT_RANGE, now_ns());
  hand_ranges();
}

static struct open_range plain(const char *text) { return (struct open_range){.name = text_of(text)}; }
static struct open_range plain_wide(const wchar_t *text) { return (struct open_range){.name = wide(text)}; }

static void mark_ex(const struct attributes *a) { mark(named_range(NULL, a)); }
static void mark_a(const char *text) { mark(plain(text)); }
static void mark_w(const wchar_t *text) { mark(plain_wide(text)); }
static uint64_t start_ex(const struct attributes *a) { return start(named_range(NULL, a)); }
static uint64_t start_a(const char *text) { return start(plain(text)); }
static uint64_t start_w(const wchar_t *text) { return start(plain_wide(text)); }
static int push_ex(const struct attributes *a) { return push(named_range(NULL, a)); }
static int push_a(const char *text) { return push(plain(text)); }
static int push_w(const wchar_t *text) { return push(plain_wide(text)); }
static int pop_plain(void) { return pop(0); }
static void domain_mark(const struct named *d, const struct attributes *a) { mark(named_range(d, a)); }
static uint64_t domain_start(const struct named *d, const struct attributes *a) { return start(named_range(d, a)); }
static void domain_end(const struct named *d, uint64_t id) {
  (void)d;
  end(id);
}
static int domain_push(const struct named *d, const struct attributes *a) { return push(named_range(d, a)); }
static int domain_pop(const struct named *d) { return pop(d == NULL ? 0 : d->text); }

static struct named *make(uint32_t text) {
  struct named *made = malloc(sizeof *made);
  if (made != NULL) made->text = text;
  return made;
}
static struct named *string_a(const struct named *d, const char *text) {
  (void)d;
  return make(text_of(text));
}
static struct named *string_w(const struct named *d, const wchar_t *text) {
  (void)d;
  return make(wide(text));
}
static struct named *domain_a(const char *text) { return make(text_of(text)); }
static struct named *domain_w(const wchar_t *text) { return make(wide(text)); }
static void domain_destroy(struct named *d) { free(d); }

typedef void (*function)(void);
struct export_table {
  size_t size;
  int (*GetModuleFunctionTable)(int module, function ***table, unsigned *size);
};

#define F(place, name) {place, (function)name}
static const struct {
  unsigned place;
  function own;
} core[] = {F(1, mark_ex), F(2, mark_a), F(3, mark_w), F(4, start_ex), F(5, start_a), F(6, start_w), F(7, end),
            F(8, push_ex), F(9, push_a), F(10, push_w), F(11, pop_plain)},
  core2[] = {F(1, domain_mark), F(2, domain_start), F(3, domain_end), F(4, domain_push), F(5, domain_pop),
             F(10, string_a), F(11, string_w), F(12, domain_a), F(13, domain_w), F(14, domain_destroy)};

int InitializeInjectionNvtx2(const void *(*get)(uint32_t));
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void *(*get)(uint32_t)) {
  const struct export_table *exported = get(CALLBACKS);
  function **table;
  unsigned size;
  if (exported == NULL || !probed()) return 0; /* then NVTX calls nothing */
  if (exported->GetModuleFunctionTable(CORE, &table, &size))
    for (size_t i = 0; i < sizeof core / sizeof core[0]; i++)
      if (core[i].place <= size) *table[core[i].place] = core[i].own;
  if (exported->GetModuleFunctionTable(CORE2, &table, &size))
    for (size_t i = 0; i < sizeof core2 / sizeof core2[0]; i++)
      if (core2[i].place <= size) *table[core2[i].place] = core2[i].own;
  static int told;
  if (!__atomic_exchange_n(&told, 1, __ATOMIC_ACQ_REL)) {
    atexit(at_exit);
    hand_state(STATE_RANGES, "");
  }
  return 1;
}
