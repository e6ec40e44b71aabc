"""Files of code: which are mapped where, their functions, and where a probe may lie."""
