/* Stands in for libcuda.so.1 below cudart.c, where the cost of calls with both layers is measured. */
#define API __attribute__((noinline, noclone, visibility("default"))) int

static volatile int done;

API cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
		   unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra)
{
	(void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
	(void)shared, (void)stream, (void)arguments, (void)extra;
	__asm__ volatile("" : : "r"(__builtin_frame_address(0))); /* push %rbp, as in cudart.c */
	return done;
}

API cuStreamSynchronize(void *stream)
{
	(void)stream;
	__asm__ volatile("" : : "r"(__builtin_frame_address(0)));
	return done;
}
