"""Commands around the daemon, and over many machines."""
