"""Frames and totals from record batches and samples, for live sources, replays and seeks."""
