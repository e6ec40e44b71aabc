"""How gputop's own processes and threads are confined, and in time."""
