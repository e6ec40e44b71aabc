"""Session files: write, read, seek."""
