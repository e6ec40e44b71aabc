/* Stands in for libcudart.so.12 where the cost of a probe is measured: functions that cost about 2 ns and
 * begin with `push %rbp`, as the real ones do (the kernel emulates that instruction; others it steps).
 */
#include <stddef.h>

#define API __attribute__((noinline, noclone, visibility("default"))) int

typedef struct {
	unsigned int x, y, z;
} dim3;

static volatile int done;

#ifdef BOTH_LAYERS /* with cuda.c */
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuStreamSynchronize(void *);
#else
#define cuStreamSynchronize(...) done
#define cuLaunchKernel(...) done
#endif

/* Makes the compiler set up a frame, which begins with push %rbp, in functions that need none. */
#define FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

API cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream)
{
	(void)function, (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
	FRAME();
	return cuLaunchKernel((void *)function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, 0);
}

API cudaEventQuery(void *event)
{
	(void)event;
	FRAME();
	return done;
}

API cudaEventRecord(void *event, void *stream)
{
	(void)event, (void)stream;
	FRAME();
	return done;
}

API cudaStreamSynchronize(void *stream)
{
	(void)stream;
	FRAME();
	return cuStreamSynchronize(stream);
}

API cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	(void)to, (void)from, (void)bytes, (void)kind, (void)stream;
	FRAME();
	return done;
}

API cudaMalloc(void **address, size_t bytes)
{
	(void)address, (void)bytes;
	FRAME();
	return done;
}
