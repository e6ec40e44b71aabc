"""Python frames: which interpreters there are, how their structures lie, and what stacks mean."""
