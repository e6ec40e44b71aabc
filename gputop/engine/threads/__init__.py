"""Threads: switches, states, waits for the disk, page faults."""
