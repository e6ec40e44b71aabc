/* Two processes on one CPU hand a byte to and fro through two pipes: switches CPU
 *
 * Reads lines "BATCHES TURNS" and answers each with "MIN MEDIAN": nanoseconds of CPU time that both took for a
 * switch, in the fastest batch and in the middle one. A turn is two switches and two wakeups.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAX_BATCHES 100000

static double took[MAX_BATCHES];

static double used_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int there[2], back[2], batches, turns;
	char byte = 0;
	cpu_set_t cpu;
	clockid_t other;
	CPU_ZERO(&cpu);
	CPU_SET(argc > 1 ? atoi(argv[1]) : 0, &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);
	if (pipe(there) || pipe(back))
		return 1;
	pid_t child = fork();
	if (!child) {
		close(there[1]);
		while (read(there[0], &byte, 1) == 1)
			if (write(back[1], &byte, 1) != 1)
				break;
		return 0;
	}
	if (child < 0 || clock_getcpuclockid(child, &other))
		return 1;
	while (scanf("%d %d", &batches, &turns) == 2 && batches <= MAX_BATCHES) {
		for (int i = 0; i < batches; i++) {
			double start = used_ns(CLOCK_PROCESS_CPUTIME_ID) + used_ns(other);
			for (int j = 0; j < turns; j++)
				if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
					return 1;
			took[i] = (used_ns(CLOCK_PROCESS_CPUTIME_ID) + used_ns(other) - start) / turns / 2;
		}
		qsort(took, batches, sizeof(*took), by_value);
		printf("%.1f %.1f\n", took[0], took[batches / 2]);
		fflush(stdout);
	}
	return 0;
}
