"""Commands that show live data or a recording."""
