"""The library that the CUDA driver and NVTX load into a program started with ``--inside``."""
