"""One process as lines: calls, threads, code, kernels, memory, steps."""
