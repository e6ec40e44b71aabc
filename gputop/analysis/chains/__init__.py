"""The chain of waits from the submitting thread down."""
