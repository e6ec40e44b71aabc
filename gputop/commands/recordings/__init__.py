"""Commands that record, add up, explain, compare and query recordings."""
