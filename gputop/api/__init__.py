"""What other programs import from gputop: recordings opened, added up, explained and compared."""
