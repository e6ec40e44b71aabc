"""The BPF programs: compiled, loaded, attached, read and detached."""
