"""From C text to programs that fit this kernel: compiler, cache, type information."""
