"""Mutation testing: small wrong changes of the code, and whether the tests notice each of them."""
