"""A day of events in accelerated time, through everything that is live but the kernel and the terminal."""
