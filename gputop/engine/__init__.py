"""From record batches and samples to frames and totals; live, replay and seek share it."""
