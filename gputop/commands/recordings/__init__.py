"""Commands that record, sum up, explain, compare and query recordings."""
