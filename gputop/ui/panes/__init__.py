"""The panes of the main screen, and the questions over it: Textual widgets without logic."""
