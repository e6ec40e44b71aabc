"""Frames of Python and native code: interpreters, their structures, the meaning of stacks."""
