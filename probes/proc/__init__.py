"""What /proc shows: processes, threads, descriptors, system calls."""
