"""Traces of other tools as session files; what they do not hold stays unknown."""
