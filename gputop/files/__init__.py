"""Session files as files: contents, integrity, excerpts and redacted copies."""
