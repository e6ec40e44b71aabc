"""The detail of a recording: every record, those around events, or sums only."""
