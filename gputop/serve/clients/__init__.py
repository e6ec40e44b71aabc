"""The daemon's socket: what each user may see, and how it is sent."""
