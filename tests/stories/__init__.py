"""PyTorch programs as people write them, on the simulated GPU: what is true of them, and what gputop says."""
