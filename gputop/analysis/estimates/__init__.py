"""What no proof shows: the GPU's time by its queue and NVML, and the loop run again without a cause."""
