"""Which processes are listed, how, and in which columns."""
