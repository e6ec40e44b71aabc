"""The live history: the newest minutes of a session on disk."""
