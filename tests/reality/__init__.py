"""The bench of reality: traces of real GPUs against what gputop says of them."""
