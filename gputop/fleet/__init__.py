"""Many recordings as a lake: each explained once by worker processes, then queried together."""
