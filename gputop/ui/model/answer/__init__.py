"""Why the GPU was idle, as lines: the panel, one line, the chain page, the summary at the end."""
