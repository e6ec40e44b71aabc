"""GPUs: rows from NVML, the processes on each, work recorded by a profiler."""
