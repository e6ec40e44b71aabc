"""Demo programs on the simulated GPU, each with one common performance fault, or none."""
