/* What the library's parts share: rows, texts and states that are handed over. */
#ifndef HAND_H
#define HAND_H

#include "inside_layout.h"

#include <stddef.h>

uint64_t now_ns(void);
int probed(void);            /* whether somebody reads what is handed over */
uint32_t text_of(const char *text);
void hand_row(const struct row *row);
void hand_state(uint32_t state, const char *sentence);
void hand_moment(uint64_t monotonic, uint64_t cupti, uint64_t error);
void hand_rest(uint64_t flushed, uint64_t dropped); /* what is left of a batch */
void hand_ranges(void); /* the same, of ranges: nothing was flushed */
void hand_words(uint32_t message, uint32_t number, const char *text);
uint32_t thread_id(void);

#endif
