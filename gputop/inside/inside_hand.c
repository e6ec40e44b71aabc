/* Hands rows over: in batches, to an empty function whose argument a probe reads. Nothing waits for the reader. */
#define _GNU_SOURCE
#include "hand.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TEXTS (1u << 15)
#define OLD_NS 50000000ull

/* The first instruction is known, so that what is there instead tells of a probe: no call says whether one is there. */
void HAND(const void *message, uint64_t bytes);
#if defined(__x86_64__)
__asm__(".globl gputop_inside_hand\n.type gputop_inside_hand,@function\ngputop_inside_hand:\n\tnop\n\tret\n"
        ".size gputop_inside_hand, .-gputop_inside_hand\n");
static const uint8_t untouched[] = {0x90};
#elif defined(__aarch64__)
__asm__(".globl gputop_inside_hand\n.type gputop_inside_hand,%function\n.p2align 2\ngputop_inside_hand:\n\tnop\n\tret\n"
        ".size gputop_inside_hand, .-gputop_inside_hand\n");
static const uint8_t untouched[] = {0x1f, 0x20, 0x03, 0xd5};
#else
#error "x86-64 and arm64 only"
#endif

static struct {
  struct header header;
  struct row rows[MOST_ROWS];
} batch;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static uint64_t told, handed_ns; /* rows of this process; when ranges were handed over last */
static struct {
  uint64_t hash;
  uint32_t number;
} texts[TEXTS];
static uint32_t known_texts, owner, parent; /* processes: this one, and whose child it is since it forked */

uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint32_t thread_id(void) {
  static __thread uint32_t own, of;
  if (own == 0 || of != owner) own = (uint32_t)syscall(SYS_gettid), of = owner;
  return own;
}

int probed(void) {
  const volatile uint8_t *code = (const volatile uint8_t *)(uintptr_t)HAND;
  for (size_t i = 0; i < sizeof untouched; i++)
    if (code[i] != untouched[i]) return 1;
  return 0;
}

__attribute__((constructor)) static void remember(void) { owner = (uint32_t)getpid(); }

static struct header header(uint32_t message, uint32_t count, uint32_t number) {
  struct header h = {.version = LAYOUT, .message = (uint16_t)message, .count = count, .pid = owner, .number = number};
  h.before = told;
  h.parent = parent;
  return h;
}

static void hand_batch(void) {
  uint32_t n = batch.header.count;
  if (n == 0) return;
  uint64_t dropped = batch.header.dropped, flushed = batch.header.flushed;
  batch.header = header(MESSAGE_ROWS, n, 0);
  batch.header.dropped = dropped;
  batch.header.flushed = flushed;
  told += n;
  HAND(&batch, sizeof batch.header + n * sizeof batch.rows[0]);
  batch.header.count = 0;
}

void hand_row(const struct row *row) {
  pthread_mutex_lock(&mu);
  batch.rows[batch.header.count++] = *row;
  /* without CUPTI no thread comes to hand ranges over: the next one does, when these are old enough */
  int old = row->what >= WHAT_RANGE && row->end > handed_ns + OLD_NS;
  if (old) handed_ns = row->end;
  if (old || batch.header.count == MOST_ROWS) hand_batch();
  pthread_mutex_unlock(&mu);
}

static void words(uint32_t message, uint32_t number, const char *text) {
  struct {
    struct header header;
    char text[MOST_TEXT];
  } told_text;
  size_t n = strlen(text);
  if (n > MOST_TEXT) n = MOST_TEXT;
  told_text.header = header(message, (uint32_t)n, number);
  memcpy(told_text.text, text, n);
  HAND(&told_text, sizeof told_text.header + n);
}

void hand_words(uint32_t message, uint32_t number, const char *text) {
  pthread_mutex_lock(&mu);
  words(message, number, text);
  pthread_mutex_unlock(&mu);
}

void hand_ranges(void) {
  pthread_mutex_lock(&mu);
  hand_batch();
  pthread_mutex_unlock(&mu);
}

void hand_state(uint32_t state, const char *sentence) {
  pthread_mutex_lock(&mu);
  hand_batch();
  words(MESSAGE_STATE, state, sentence);
  pthread_mutex_unlock(&mu);
}

void hand_moment(uint64_t monotonic, uint64_t cupti, uint64_t error) {
  struct {
    struct header header;
    struct moment moment;
  } message = {.moment = {monotonic, cupti, error}};
  pthread_mutex_lock(&mu);
  message.header = header(MESSAGE_CLOCK, 1, 0);
  HAND(&message, sizeof message);
  pthread_mutex_unlock(&mu);
}

void hand_rest(uint64_t flushed, uint64_t dropped) {
  pthread_mutex_lock(&mu);
  batch.header.flushed = flushed;
  batch.header.dropped = dropped;
  if (batch.header.count > 0) {
    hand_batch();
  } else { /* that nothing came is worth telling, too */
    struct header nothing = header(MESSAGE_ROWS, 0, 0);
    nothing.flushed = flushed;
    nothing.dropped = dropped;
    HAND(&nothing, sizeof nothing);
  }
  pthread_mutex_unlock(&mu);
}

/* The number of a text, which is told the first time; 0 where there is no text, or no room for more. */
uint32_t text_of(const char *text) {
  if (text == NULL || *text == '\0') return 0;
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char *c = text; *c != '\0'; c++) hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
  if (hash == 0) hash = 1;
  uint32_t number = 0;
  pthread_mutex_lock(&mu);
  uint32_t at = (uint32_t)hash & (TEXTS - 1);
  while (texts[at].hash != 0 && texts[at].hash != hash) at = (at + 1) & (TEXTS - 1);
  if (texts[at].hash == hash) {
    number = texts[at].number;
  } else if (known_texts < TEXTS / 2) {
    texts[at].hash = hash;
    number = texts[at].number = ++known_texts;
    words(MESSAGE_TEXT, number, text);
  }
  pthread_mutex_unlock(&mu);
  return number;
}

static void before_fork(void) { pthread_mutex_lock(&mu); }
static void after_fork(void) { pthread_mutex_unlock(&mu); }
static void in_child(void) {
  batch.header.count = 0; /* the parent hands it over */
  told = 0;
  parent = owner; /* which has told the texts so far */
  owner = (uint32_t)getpid();
  pthread_mutex_unlock(&mu);
}

__attribute__((constructor)) static void hear_of_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }
