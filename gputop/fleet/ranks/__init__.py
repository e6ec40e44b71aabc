"""Ranks of a job: clocks of several machines, collectives, late ranks."""
