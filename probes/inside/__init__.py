"""What a program's CUDA driver reports from inside: kernels by CUPTI, ranges by NVTX (docs/inside.md)."""
