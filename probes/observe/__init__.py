"""Observes this machine while it runs: the live sources and their parts."""
