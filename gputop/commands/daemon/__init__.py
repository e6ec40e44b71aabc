"""Commands of the daemon, and over many recordings."""
