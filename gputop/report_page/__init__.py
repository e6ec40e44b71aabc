"""``gputop report``: one page that holds everything, to be sent to a colleague."""
