"""What /proc tells: processes, threads, descriptors, system calls."""
