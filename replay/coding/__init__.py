"""How records are coded in chunks, and the frame of a session file."""
