"""The timeline's lanes, the time bar, history in bins of time."""
