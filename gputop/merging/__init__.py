"""Merges recordings of one run: ranks of a machine, nodes of a job."""
