"""Reports of a program's CUDA driver from inside: kernels by CUPTI, ranges by NVTX (docs/inside.md)."""
