"""What a program's CUDA driver tells from inside: kernels by CUPTI, ranges by NVTX (docs/inside.md)."""
