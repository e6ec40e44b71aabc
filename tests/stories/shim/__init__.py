"""The device "cuda" for a CPU build of PyTorch: its calls of the CUDA runtime, on the simulated GPU."""
