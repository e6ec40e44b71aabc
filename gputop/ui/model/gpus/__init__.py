"""GPUs and the machine as lines: figures, history, the page of one."""
