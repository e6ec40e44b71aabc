"""``gputop report``: one self-contained page, to be sent to a colleague."""
