"""The screen in a browser, through textual-serve, read-only."""
