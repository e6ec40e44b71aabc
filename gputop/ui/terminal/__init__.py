"""The terminal: Textual's driver, the colours, and restoring it in any case."""
