"""Commands that show the present or a recording, and what they share."""
