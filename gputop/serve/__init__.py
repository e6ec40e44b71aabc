"""gputop as a service: a root daemon observes, and all users connect to its socket."""
