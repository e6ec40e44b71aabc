/* Launches at a steady rate and tells what a launch took: paced RATE SECONDS OUT
 *
 * Each millisecond's launches are one burst; bursts that are missed, because the program got no CPU, are not made up
 * for at a higher rate. OUT gets "LAUNCHES MEDIAN_NS CPU_NS": how many there were, what one took in
 * the middle burst, and of CPU time of the thread in all of them; OUT.begun is there from the first burst on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
	unsigned x, y, z;
} dim3;

#define LATE_NS 10000000 /* a burst that is later begins a new row of bursts */

static void kernel(void) {}

static long long now_ns(int clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void write_line(const char *name, const char *suffix, long launches, double median, double cpu)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s%s", name, suffix);
	FILE *file = fopen(path, "w");
	if (!file || fprintf(file, "%ld %f %f\n", launches, median, cpu) < 0 || fclose(file))
		exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	int per_burst = atoi(argv[1]) / 1000, bursts = atof(argv[2]) * 1000;
	double *took = malloc(bursts * sizeof(*took));
	void *library = dlopen("libcudart.so.12", RTLD_NOW | RTLD_GLOBAL), *stream;
	if (!library || !took)
		return 3;
	int (*launch)(const void *, dim3, dim3, void **, size_t, void *) = dlsym(library, "cudaLaunchKernel");
	int (*create)(void **, unsigned) = dlsym(library, "cudaStreamCreateWithFlags");
	int (*synchronize)(void *) = dlsym(library, "cudaStreamSynchronize");
	unsigned long long ns = 500;
	void *arguments[] = {&ns};
	dim3 one = {1, 1, 1};
	long wrong = create(&stream, 1);
	write_line(argv[3], ".begun", 0, 0, 0);
	long long next = now_ns(CLOCK_MONOTONIC), cpu = 0;
	for (int burst = 0; burst < bursts; burst++) {
		struct timespec until = {next / 1000000000, next % 1000000000};
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		long long begin = now_ns(CLOCK_MONOTONIC);
		next = next + LATE_NS < begin ? begin : next + 1000000;
		long long begin_cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
		for (int i = 0; i < per_burst; i++)
			wrong += launch((void *)kernel, one, one, arguments, 0, stream) != 0;
		cpu += now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_cpu;
		took[burst] = (double)(now_ns(CLOCK_MONOTONIC) - begin) / per_burst;
	}
	wrong += synchronize(stream);
	qsort(took, bursts, sizeof(*took), by_value);
	long launches = (long)per_burst * bursts;
	write_line(argv[3], "", launches, took[bursts / 2], (double)cpu / launches);
	return wrong != 0;
}
