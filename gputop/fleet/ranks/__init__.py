"""Ranks of a job: clocks of several machines, collectives, which rank is late."""
