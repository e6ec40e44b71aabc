"""What observes this machine while it runs: the live sources and what they need."""
