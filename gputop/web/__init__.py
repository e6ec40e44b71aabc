"""The screen in a browser, through textual-serve; nothing in it changes anything on this machine."""
