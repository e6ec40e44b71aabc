"""What gputop says on a machine with a real GPU, against what its programs and torch.profiler say."""
