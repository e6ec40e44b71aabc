"""Who made the submitting thread wait, and who made that one wait."""
