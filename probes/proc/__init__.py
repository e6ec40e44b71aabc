"""Facts from /proc: processes, threads, descriptors, system calls."""
