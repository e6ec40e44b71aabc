"""What gputop costs, against its bounds: ``python -m tests.bench`` (``make bench``)."""
