/* Calls one function of cudart.c in batches and tells what a call took: driver CPU [FRAMES]
 *
 * Reads lines "FUNCTION BATCHES CALLS" (FUNCTION 0 to 5, 6 for all in turn) and answers each with
 * "MIN MEDIAN": nanoseconds per call of the fastest batch and of the middle one. Stays on one CPU. With FRAMES
 * so many functions are between main and the one that calls.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
	unsigned int x, y, z;
} dim3;

int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int cudaEventQuery(void *);
int cudaEventRecord(void *, void *);
int cudaStreamSynchronize(void *);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMalloc(void **, size_t);

#define MAX_BATCHES 100000
#define STREAM ((void *)0x1000)

static double took[MAX_BATCHES];
static const dim3 one = {1, 1, 1};
static char memory[64];

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void call(int function)
{
	void *address;
	switch (function) {
	case 0: cudaLaunchKernel(memory, one, one, &address, 0, STREAM); break;
	case 1: cudaEventQuery(memory); break;
	case 2: cudaEventRecord(memory, STREAM); break;
	case 3: cudaStreamSynchronize(STREAM); break;
	case 4: cudaMemcpyAsync(memory, memory + 32, 32, 1, STREAM); break;
	default: cudaMalloc(&address, 64); break;
	}
}

static double batch(int function, int calls)
{
	double start = now_ns();
	if (function < 6)
		for (int i = 0; i < calls; i++)
			call(function);
	else
		for (int i = 0; i < calls; i++)
			call(i % 6);
	return (now_ns() - start) / calls;
}

static double nested(int frames, int function, int calls)
{
	volatile double took = frames > 0 ? nested(frames - 1, function, calls) : batch(function, calls);
	return took;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int function, batches, calls;
	cpu_set_t cpu;
	if (argc < 2)
		return 2;
	CPU_ZERO(&cpu);
	CPU_SET(atoi(argv[1]), &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu)) {
		perror("sched_setaffinity");
		return 1;
	}
	while (scanf("%d %d %d", &function, &batches, &calls) == 3 && batches > 0 && batches <= MAX_BATCHES) {
		for (int i = 0; i < batches; i++)
			took[i] = nested(argc > 2 ? atoi(argv[2]) : 0, function, calls);
		qsort(took, batches, sizeof(took[0]), by_value);
		printf("%f %f\n", took[0], took[batches / 2]);
		fflush(stdout);
	}
	return 0;
}
