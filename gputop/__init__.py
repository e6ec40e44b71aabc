"""What a person runs and sees: command line, screen, statistics, demo."""
