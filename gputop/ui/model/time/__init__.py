"""Time as lines: lanes, the bar, history in bins of time."""
