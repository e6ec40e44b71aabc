/* The command that is watched: calls CUDA for a quarter of a second, then ends with a status of its own. */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

int main(void)
{
	struct timespec pause = { 0, 5000000 };
	void *cuda = dlopen("libcudart.so.12", RTLD_NOW);
	if (!cuda) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(cuda, "cudaMalloc");
	int (*set)(void *, int, size_t) = (int (*)(void *, int, size_t))dlsym(cuda, "cudaMemset");
	int (*synchronize)(void) = (int (*)(void))dlsym(cuda, "cudaDeviceSynchronize");
	void *memory = 0;
	if (allocate(&memory, 1 << 20))
		return 2;
	for (int step = 0; step < 50; step++) {
		if (set(memory, 0, 1 << 20) || synchronize())
			return 3;
		nanosleep(&pause, 0);
	}
	return 7;
}
