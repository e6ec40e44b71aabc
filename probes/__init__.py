"""Everything that observes the machine: eBPF, NVML, procfs; the event schema."""
