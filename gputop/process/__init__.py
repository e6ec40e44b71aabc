"""How gputop runs as a process: whom it trusts, what it starts, what it says where."""
