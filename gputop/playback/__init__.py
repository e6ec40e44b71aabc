"""The screen's data: the live session, its past, and recordings."""
