"""Why the GPU waits: exact intervals, proofs of an empty GPU, wakeup chains, causes."""
