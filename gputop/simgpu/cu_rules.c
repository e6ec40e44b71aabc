/* How long a kernel lasts and what it uses, by its name and its grid: the rules of kernel_rules.txt. */
#include "cu_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES 1024
#define SM_THREADS 2048
#define SM_BLOCKS 32

extern const char sg_default_rules[];

const struct sg_use use_of_declared = {800, 500, 400, 333}, use_of_fill = {900, 400, 0, 850},
                    use_of_collective = {180, 60, 0, 100}, use_of_copy = {0, 0, 0, 850};

static const struct {
  const char *name;
  struct sg_use use; /* of a device that is full */
} classes[] = {
    {"tensor", {950, 200, 600, 250}}, {"fp32", {950, 300, 0, 200}},   {"attention", {950, 200, 450, 120}},
    {"memory", {950, 800, 0, 900}},   {"reduce", {900, 700, 0, 650}}, {"sort", {850, 600, 0, 350}},
    {"gather", {850, 700, 0, 450}},   {"other", {800, 500, 0, 333}},
};

static struct rule rules[MAX_RULES];
static size_t count;

static const struct sg_use *use_named(const char *name) {
  for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
    if (strcmp(classes[i].name, name) == 0) return &classes[i].use;
  return NULL;
}

static int read_line(char *line, struct rule *r) {
  char part[256], class[32] = "other";
  unsigned long long fixed, wave;
  if (sscanf(line, "%255s %llu %llu %31s", part, &fixed, &wave, class) < 3) return 0;
  *r = (struct rule){strdup(part), fixed, wave, use_named(class)};
  return r->part != NULL && r->use != NULL;
}

static void read_rules(char *text, const char *origin) {
  char *rest, *line = strtok_r(text, "\n", &rest);
  for (; line != NULL && count < MAX_RULES; line = strtok_r(NULL, "\n", &rest)) {
    if (line[strspn(line, " \t\r")] == '\0' || *line == '#') continue;
    if (read_line(line, &rules[count]))
      count++;
    else
      fprintf(stderr, "simgpu: %s: \"%s\" is no rule: PART_OF_NAME FIXED_NS WAVE_NS CLASS\n", origin, line);
  }
}

static char *text_of(const char *path) {
  FILE *file = fopen(path, "re");
  char *text = NULL;
  size_t room = 0;
  if (file != NULL && getdelim(&text, &room, '\0', file) < 0) {
    free(text);
    text = strdup("");
  }
  if (file != NULL) fclose(file);
  return text;
}

static void load(void) {
  const char *path = getenv("SIMGPU_KERNEL_RULES");
  char *text = path == NULL ? NULL : text_of(path);
  if (path != NULL && text == NULL) fprintf(stderr, "simgpu: %s cannot be read; the usual rules hold\n", path);
  if (text == NULL) {
    path = "kernel_rules.txt";
    text = strdup(sg_default_rules);
  }
  if (text != NULL) read_rules(text, path);
  free(text);
}

const struct rule *rule_for(const char *name) {
  static int loaded;
  if (!loaded) load();
  loaded = 1;
  for (size_t i = 0; i < count; i++)
    if (strstr(name, rules[i].part) != NULL) return &rules[i];
  return NULL;
}

static uint16_t part_of(uint16_t use, double share) { return (uint16_t)(use * (share < 1 ? share : 1) + 0.5); }

/* Blocks run in waves that fill the device; a last one that is not full leaves some of it without work. */
void rule_apply(const struct rule *rule, uint64_t blocks, uint64_t threads, struct op *op) {
  uint64_t on_sm = SM_THREADS / threads < SM_BLOCKS ? SM_THREADS / threads : SM_BLOCKS;
  uint64_t room = SG_SM_COUNT * (on_sm > 0 ? on_sm : 1), waves = (blocks + room - 1) / room;
  double full = (double)blocks / (double)(room * waves), working;
  op->duration = rule->fixed_ns + rule->wave_ns * waves;
  if (op->duration == 0) op->duration = 1;
  working = full * (double)(rule->wave_ns * waves) / (double)op->duration;
  op->use = (struct sg_use){.sm = part_of(rule->use->sm, (double)blocks / SG_SM_COUNT),
                            .occupancy = part_of(rule->use->occupancy, full),
                            .tensor = part_of(rule->use->tensor, working),
                            .dram = part_of(rule->use->dram, working)};
}
