"""The panes and dialogs of the main screen: Textual widgets without logic."""
