"""Workloads on the simulated GPU, each with one fault (or none) that people meet in practice."""
