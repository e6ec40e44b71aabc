"""The terminal: Textual's driver, its colours, and giving it back whatever happens."""
