"""Traces of other tools as session files; data that they do not hold stays unknown."""
