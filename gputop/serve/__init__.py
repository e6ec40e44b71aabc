"""gputop as a service: one process of root observes, everybody else asks it by a socket."""
