"""What `gputop check` looks at: a file a family, each with what it found and what that means."""
