"""NVML: each query with its period and its outcome."""
