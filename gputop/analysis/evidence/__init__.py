"""What was seen, as columns: calls, off-CPU intervals, samples; and the tools to join them."""
