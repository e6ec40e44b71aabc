"""Estimates: the GPU's time by its queue and NVML, and the loop simulated without a cause."""
