"""What a session file is as a file: what is in it, whether it is whole, and parts or copies of it."""
