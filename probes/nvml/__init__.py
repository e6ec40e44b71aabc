"""NVML: each question with how often it is asked and what became of it."""
