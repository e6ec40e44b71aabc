"""Fuzzing of what gputop reads of others: a file a target, each in a process of its own under limits."""
