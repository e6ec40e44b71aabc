"""Calls: counted, timed, by function, line and kernel; those that failed."""
