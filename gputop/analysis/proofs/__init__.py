"""Proofs by CUDA's documented rules: when a GPU was certainly idle, and when it certainly had work."""
