"""What follows from CUDA's documented rules: when a GPU was idle for sure, and when it was not."""
