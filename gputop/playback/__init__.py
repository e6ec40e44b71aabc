"""What the screen polls: the live session, its past, and recordings."""
