"""gputop as a process: trust in paths, child processes, signals, terminal, standard streams, errors."""
