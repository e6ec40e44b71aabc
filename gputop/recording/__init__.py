"""What of a session is written: every record, every record of what matters, or sums only."""
