"""The daemon's socket: views of each user, and the protocol."""
