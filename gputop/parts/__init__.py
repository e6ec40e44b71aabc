"""Mergeable work on parts of recordings, in several processes."""
